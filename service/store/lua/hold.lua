-- ARGV: uid, expected, id, packed prediction, expires_at, forget_at, now, limit, how many to forget at once
-- Answers {'gone'}, {'applied', id, answer}, {'waiting', packed prediction}, {'behind', reading}, {'full'} or {'held'}.

local uid, expected, id, packed, expires_at, forget_at, now, limit, swept_at_once = unpack(ARGV)
local round = round_of(uid)
if not round then return {'gone'} end

call('ZREMRANGEBYSCORE', expiry, '-inf', now)
local forgotten = call('ZRANGEBYSCORE', forget, '-inf', now, 'LIMIT', 0, swept_at_once)
if #forgotten > 0 then
  call('HDEL', waiting, unpack(forgotten))
  call('ZREM', forget, unpack(forgotten))
end

local answer = call('HGET', applied, id)
if answer then return {'applied', id, answer} end
local held = call('HGET', waiting, id)
if held then return {'waiting', held} end
if round ~= tonumber(expected) then return {'behind', reading(tonumber(expected))} end
if call('ZCARD', expiry) >= tonumber(limit) then return {'full'} end

call('HSET', waiting, id, packed)
call('ZADD', expiry, expires_at, id)
call('ZADD', forget, forget_at, id)
return {'held'}
