-- ARGV: uid, expected, id, packed prediction, expires_at, now, limit, how many to sweep at once
-- Answers {'gone'}, {'applied', id, answer}, {'waiting', packed prediction}, {'behind', reading}, {'full'} or {'held'}.

local uid, expected, id, packed, expires_at, now, limit, swept_at_once = unpack(ARGV)
local round = round_of(uid)
if not round then return {'gone'} end

local function due(times)
  return call('ZRANGEBYSCORE', times, '-inf', now, 'LIMIT', 0, swept_at_once)
end

local waits
repeat
  local expired = due(expiry)
  if #expired > 0 then
    for i, held in ipairs(call('HMGET', waiting, unpack(expired))) do
      local _, forget_at = struct.unpack('<dd', held)
      call('ZADD', forget, forget_at, expired[i])
    end
    call('ZREM', expiry, unpack(expired))
  end
  waits = call('ZCARD', expiry)
until waits < tonumber(limit) or #expired == 0
local forgotten = due(forget)
if #forgotten > 0 then
  call('HDEL', waiting, unpack(forgotten))
  call('ZREM', forget, unpack(forgotten))
end

local answer = call('HGET', applied, id)
if answer then return {'applied', id, answer} end
local is_in_time = round == tonumber(expected)
if is_in_time and waits < tonumber(limit) and call('HSETNX', waiting, id, packed) == 1 then
  call('ZADD', expiry, expires_at, id)
  return {'held'}
end
local held = call('HGET', waiting, id)
if held then return {'waiting', held} end
if not is_in_time then return {'behind', reading(tonumber(expected))} end
return {'full'}
