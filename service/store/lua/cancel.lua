-- ARGV: the limits, id
-- Returns {'cancelled'}, or {'gone'} if nothing waits under the id.

local id = ARGV[2]
local expires_at, held = tonumber(call('ZSCORE', expiry, id) or 0), call('HGET', waiting, id)
if not held or expires_at <= now then return {'gone'} end
if sealed_until > now then return sealed() end
local _, forgotten_at = struct.unpack('<dd', held)
forgotten_at = now + (forgotten_at - expires_at)
call('HSET', waiting, id, struct.pack('<dd', now, forgotten_at) .. held:sub(17))
call('ZREM', expiry, id)
call('ZADD', forget, forgotten_at, id)
waiting_bytes, expired_bytes = waiting_bytes - #held + 16, expired_bytes + #held - 16
never_came = never_came + 1
plan(forgotten_at)
expire()
forget_expired()
save(at)
return {'cancelled'}
