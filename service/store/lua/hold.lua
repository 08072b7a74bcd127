-- ARGV: uid, expected, id, packed prediction, expires_at, now, limit, how many to sweep at once
-- Answers {'gone'}, {'applied', id, answer}, {'waiting', packed prediction}, {'behind', reading}, {'full'} or 'held'.

local uid, expected, id, packed, expires_at, now, limit, swept_at_once = unpack(ARGV)
local round, due_at = round_of(uid, 'due_at')
if not round then return {'gone'} end

local function due(times)
  return call('ZRANGEBYSCORE', times, '-inf', now, 'LIMIT', 0, swept_at_once)
end

local function earliest(times)
  return call('ZRANGE', times, 0, 0, 'WITHSCORES')[2]
end

local function sweep()
  repeat
    local expired = due(expiry)
    if #expired > 0 then
      for i, held in ipairs(call('HMGET', waiting, unpack(expired))) do
        local _, forget_at = struct.unpack('<dd', held)
        call('ZADD', forget, forget_at, expired[i])
      end
      call('ZREM', expiry, unpack(expired))
    end
  until call('ZCARD', expiry) < tonumber(limit) or #expired == 0
  local forgotten = due(forget)
  if #forgotten > 0 then
    call('HDEL', waiting, unpack(forgotten))
    call('ZREM', forget, unpack(forgotten))
  end
  local expires, forgets = earliest(expiry), earliest(forget)
  if expires and forgets then return tonumber(expires) < tonumber(forgets) and expires or forgets end
  return expires or forgets
end

local was_due = due_at
if not due_at or tonumber(now) >= tonumber(due_at) then due_at = sweep() end

local answer = call('HGET', applied, id)
if answer then return {'applied', id, answer} end
local is_in_time = round == tonumber(expected)
if is_in_time and call('ZCARD', expiry) < tonumber(limit) and call('HSETNX', waiting, id, packed) == 1 then
  call('ZADD', expiry, expires_at, id)
  if not due_at or tonumber(expires_at) < tonumber(due_at) then due_at = expires_at end
  if due_at ~= was_due then call('HSET', head, 'due_at', due_at) end
  return 'held'
end
local held = call('HGET', waiting, id)
if held then return {'waiting', held} end
if not is_in_time then return {'behind', reading(tonumber(expected))} end
return {'full'}
