-- Counters and expiry, inserted between session.lua and the scripts that change waiting predictions.
--
-- ARGV[1]: the limits as seven f64: number of waiting predictions, their bytes, number of remembered ids, their bytes, their
--   retention, the longest retention of an expired prediction, number to sweep at once. Durations are in microseconds.

local most_waiting, most_waiting_bytes, most_remembered, most_remembered_bytes, remembered_for, expired_for, swept_at_once =
  struct.unpack('<ddddddd', ARGV[1])
local at, packed, sealed_until = tip_and('counters')
if not at then return {'gone'} end
local now = now_us()
local updated_at, due_at, journal_bytes, number_waiting, waiting_bytes, expired_bytes, number_remembered, remembered_bytes,
  never_came = struct.unpack(COUNTERS, packed)

local function plan(time)
  if time < due_at then due_at = time end
end

local function first(times)
  local found = call('ZRANGE', times, 0, 0, 'WITHSCORES')
  return found[1], tonumber(found[2] or NEVER)
end

local function expire()
  local due = call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, swept_at_once)
  if #due > 0 then
    for i, held in ipairs(call('HMGET', waiting, unpack(due))) do
      if held then
        local _, forgotten_at = struct.unpack('<dd', held)
        call('ZADD', forget, forgotten_at, due[i])
        waiting_bytes, expired_bytes = waiting_bytes - #held + 16, expired_bytes + #held - 16
        never_came = never_came + 1
      end
    end
    call('ZREM', expiry, unpack(due))
  end
  local id, time = first(expiry)
  number_waiting = call('ZCARD', expiry)
  if not id then waiting_bytes = 0 end
  plan(time)
end

-- Expired predictions have as much room as waiting ones; beyond it they are forgotten early.
local function forget_expired()
  local id, time = first(forget)
  for _ = 1, swept_at_once do
    local is_due = time <= now or expired_bytes > most_waiting_bytes or call('ZCARD', forget) > most_waiting
    if not (id and is_due) then break end
    expired_bytes = expired_bytes - math.max(call('HSTRLEN', waiting, id) - 16, 0)
    call('HDEL', waiting, id)
    call('ZREM', forget, id)
    id, time = first(forget)
  end
  if not id then expired_bytes = 0 end
  plan(time)
end

local function save(tip)
  call('HSET', head, 'tip', tip, 'counters', struct.pack(COUNTERS, updated_at, due_at, journal_bytes, number_waiting,
    waiting_bytes, expired_bytes, number_remembered, remembered_bytes, never_came))
end

