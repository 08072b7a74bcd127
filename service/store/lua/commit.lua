-- ARGV: the limits; the caller's tip; an id ('' for none) and its answer, which replaces what is remembered under the id if
--   there are entries; the number of entries, then for each: round, digest, count, id, blob, answer ('' for none, else
--   prefixed with '*' if the entry is fresh, with '+' if not); then for each hold: id, blob, wait in microseconds
-- Returns {'gone'}, {'applied', id, answer}, {'behind', reading}, {'waits', id, blob, is expired} or
--   {'committed', outcomes, number waiting, never_came}. The outcome of a hold is nil if it now waits, else {'full'} or what
--   is stored under its id. An empty commit writes nothing.

if sealed_until > now then return sealed() end
local tip, progress, number_of_entries = ARGV[2], ARGV[3], tonumber(ARGV[5])
local ENTRIES, ENTRY_WIDTH, HOLD_WIDTH = 6, 6, 3
local HOLDS = ENTRIES + number_of_entries * ENTRY_WIDTH
local LAST = HOLDS - ENTRY_WIDTH
local FRESH = ('*'):byte()
local overdue = {} -- remembered ids that are past their time to live, or are remembered again

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

-- Remove the waiting or expired prediction under an id, because its truth came or its time ran out.
local function settle(id, has_come)
  local bytes = call('HSTRLEN', waiting, id) - 16
  if bytes < 0 then return end
  call('HDEL', waiting, id)
  if call('ZREM', expiry, id) == 1 then
    number_waiting, waiting_bytes = number_waiting - 1, waiting_bytes - bytes
    if not has_come then never_came = never_came + 1 end
  elseif call('ZREM', forget, id) == 1 then -- it is in neither if Redis has evicted one of the two
    expired_bytes = expired_bytes - bytes
    if has_come then never_came = never_came - 1 end
  end
end

local function remember(id, answer)
  if overdue[id] then
    local bytes = math.max(call('HSTRLEN', applied, id) - 8, 0)
    -- The list lacks the id if Redis has evicted it; then the bytes may have been subtracted already.
    if call('LREM', remembered, id == progress and -1 or 1, id) == 1 then remembered_bytes = remembered_bytes - bytes end
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
  settle(id, true)
  if answer ~= '' then remember(id, answer:sub(2)) end
end

local function outcome(id, blob, wait)
  local found, is_left_over = what_is_under(id, now, remembered_for)
  if found then
    local is_again = found[1] == 'waiting' and found[2] == blob and found[3] == 0
    return not is_again and found
  end
  if is_left_over then settle(id, false) end
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
  for i = ENTRIES, LAST, ENTRY_WIDTH do
    if ARGV[i + 5]:byte() == FRESH then
      local found = what_is_under(ARGV[i + 3], now, remembered_for)
      if found then return {'waits', ARGV[i + 3], found[2], found[3]} end
    end
  end
elseif number_of_entries == 0 then
  if at ~= tip then return {'behind', reading(tip)} end
  if HOLDS > #ARGV then return {'committed', {}, number_waiting, never_came} end
end

if now >= due_at then
  due_at = NEVER
  expire()
  forget_expired()
  forget_answers(swept_at_once)
end
if is_appending then
  for i = ENTRIES, LAST, ENTRY_WIDTH do append(i) end
  if progress ~= '' then
    overdue[progress] = call('HEXISTS', applied, progress) == 1
    remember(progress, ARGV[4])
  end
  at, updated_at = ARGV[LAST] .. ':' .. ARGV[LAST + 1], now
  if remembered_bytes > most_remembered_bytes or number_remembered > most_remembered then
    forget_answers(swept_at_once + number_of_entries)
  end
end
if HOLDS <= #ARGV and call('EXISTS', waiting) == 0 and call('UNLINK', expiry, forget) > 0 then
  -- Redis has evicted the predictions, but not their times: these would take up the room until they expire, and would make a
  -- prediction that is kept under the same id forgotten too early.
  number_waiting, waiting_bytes, expired_bytes = 0, 0, 0
end
local outcomes = {}
for i = HOLDS, #ARGV, HOLD_WIDTH do
  outcomes[#outcomes + 1] = outcome(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]))
end
save(at)
return {'committed', outcomes, number_waiting, never_came}
