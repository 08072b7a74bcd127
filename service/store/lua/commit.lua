-- ARGV: the limits as eight f64 (most waiting, their most bytes, most remembered, their most bytes, for how long, for how long
--   an expired prediction at most, how many to sweep at once, 0); the caller's tip; the number of entries, then for each:
--   round, digest, count, id, blob, answer ('' or '+' and the answer); then for each hold: id, blob, how long it waits
-- Answers {'gone'}, {'applied', id, answer}, {'behind', reading} or {'committed', outcomes}. An outcome is nil for one that
--   waits now, {'full'}, or what is under the id. Durations are in microseconds. A commit of nothing writes nothing.

local most_waiting, most_waiting_bytes, most_remembered, most_remembered_bytes, remembered_for, expired_for, swept_at_once =
  struct.unpack(COUNTERS, ARGV[1])
local tip, number_of_entries = ARGV[2], tonumber(ARGV[3])
local ENTRIES, ENTRY_WIDTH, HOLD_WIDTH = 4, 6, 3
local HOLDS = ENTRIES + number_of_entries * ENTRY_WIDTH
local LAST = HOLDS - ENTRY_WIDTH

local at, packed = tip_and('counters')
if not at then return {'gone'} end
local updated_at, due_at, journal_bytes, number_waiting, waiting_bytes, expired_bytes, number_remembered, remembered_bytes =
  struct.unpack(COUNTERS, packed)
local now = now_us()
local overdue = {} -- applied ids that are to be forgotten and were not yet

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
      end
    end
    call('ZREM', expiry, unpack(due))
  end
  local id, time = first(expiry)
  number_waiting = call('ZCARD', expiry)
  if not id then waiting_bytes = 0 end
  plan(time)
end

-- The expired ones have as much room as those that wait: beyond it they are forgotten early.
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

local function forget_answers(at_most)
  number_remembered = call('LLEN', remembered)
  for _ = 1, at_most do
    if number_remembered == 0 then break end
    local id = call('LINDEX', remembered, 0)
    local value = call('HGET', applied, id)
    local due = (value and struct.unpack('<d', value) or 0) + remembered_for
    if due > now and number_remembered <= most_remembered and remembered_bytes <= most_remembered_bytes then
      return plan(due)
    end
    call('LPOP', remembered)
    call('HDEL', applied, id)
    remembered_bytes = remembered_bytes - (value and #value - 8 or 0)
    number_remembered = number_remembered - 1
  end
  if number_remembered == 0 then remembered_bytes = 0 else plan(now) end
end

-- The prediction under an id no longer waits, or is no longer remembered.
local function settle(id)
  local bytes = call('HSTRLEN', waiting, id) - 16
  if bytes < 0 then return end
  call('HDEL', waiting, id)
  if call('ZREM', expiry, id) == 1 then
    number_waiting, waiting_bytes = number_waiting - 1, waiting_bytes - bytes
  else
    call('ZREM', forget, id)
    expired_bytes = expired_bytes - bytes
  end
end

local function remember(id, answer)
  if overdue[id] then
    remembered_bytes = remembered_bytes - math.max(call('HSTRLEN', applied, id) - 8, 0)
    call('LREM', remembered, 1, id)
  end
  call('HSET', applied, id, struct.pack('<d', now) .. answer)
  number_remembered = call('RPUSH', remembered, id)
  remembered_bytes = remembered_bytes + #answer
  plan(now + remembered_for)
end

local function append(i)
  local id, blob, answer = ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  call('XADD', journal, ARGV[i] .. '-0', 'digest', ARGV[i + 1], 'count', ARGV[i + 2], 'id', id, 'blob', blob)
  journal_bytes = journal_bytes + #blob
  settle(id)
  if answer ~= '' then remember(id, answer:sub(2)) end
end

local function outcome(id, blob, wait)
  local found, is_left_over = what_is_under(id, now, remembered_for)
  if found then
    local is_again = found[1] == 'waiting' and found[2] == blob and found[3] == 0
    return not is_again and found
  end
  if is_left_over then settle(id) end
  if number_waiting >= most_waiting or waiting_bytes + #blob > most_waiting_bytes then return {'full'} end
  local expires_at = now + wait
  call('HSET', waiting, id, struct.pack('<dd', expires_at, expires_at + math.min(wait, expired_for)) .. blob)
  call('ZADD', expiry, expires_at, id)
  number_waiting, waiting_bytes = number_waiting + 1, waiting_bytes + #blob
  plan(expires_at)
  return false
end

local is_appending = false
if number_of_entries > 0 then
  local at_round, last_round = tonumber(round_of(at)), tonumber(ARGV[LAST])
  is_appending = last_round > at_round or not is_on_chain(ARGV[LAST] .. ':' .. ARGV[LAST + 1])
end
if is_appending then
  for i = ENTRIES, LAST, ENTRY_WIDTH do
    local id = ARGV[i + 3]
    local value = call('HGET', applied, id)
    if value then
      if struct.unpack('<d', value) + remembered_for > now then return {'applied', id, value:sub(9)} end
      overdue[id] = true
    end
  end
  if at ~= tip then return {'behind', reading(tip)} end
elseif number_of_entries == 0 then
  if at ~= tip then return {'behind', reading(tip)} end
  if HOLDS > #ARGV then return {'committed', {}} end
end

if now >= due_at then
  due_at = NEVER
  expire()
  forget_expired()
  forget_answers(swept_at_once)
end
if is_appending then
  for i = ENTRIES, LAST, ENTRY_WIDTH do append(i) end
  at, updated_at = ARGV[LAST] .. ':' .. ARGV[LAST + 1], now
  if remembered_bytes > most_remembered_bytes or number_remembered > most_remembered then
    forget_answers(swept_at_once + number_of_entries)
  end
end
local outcomes = {}
for i = HOLDS, #ARGV, HOLD_WIDTH do
  outcomes[#outcomes + 1] = outcome(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]))
end
call('HSET', head, 'tip', at, 'counters', struct.pack(COUNTERS, updated_at, due_at, journal_bytes, number_waiting, waiting_bytes,
  expired_bytes, number_remembered, remembered_bytes))
return {'committed', outcomes}
