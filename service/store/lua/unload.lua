-- ARGV: note, the note from now on ('' for the same), retention of answers in microseconds; the number of entries, then for
--   each: round, digest, count, id, blob; the number of predictions, then for each: id, value, time at which it is due, 1 if
--   expired; then for each remembered id: id, value
-- Returns 1, or 0 if the session is not sealed for good with this note.

local note, later, remembered_for = ARGV[1], ARGV[2], tonumber(ARGV[3])
local found, seal, sealed_until = tip_and('seal')
if not found or sealed_until ~= NEVER or seal ~= note and (later == '' or seal ~= later) then return 0 end
local counters = {struct.unpack(COUNTERS, call('HGET', head, 'counters'))}
local DUE_AT, WAITING, WAITING_BYTES, EXPIRED_BYTES, REMEMBERED, REMEMBERED_BYTES = 2, 4, 5, 6, 7, 8

local function plan(time)
  if time < counters[DUE_AT] then counters[DUE_AT] = time end
end

local i = 5
for _ = 1, tonumber(ARGV[4]) do
  if not has_entry(ARGV[i] .. ':' .. ARGV[i + 1]) then
    call('XADD', journal, ARGV[i] .. '-0', 'digest', ARGV[i + 1], 'count', ARGV[i + 2], 'id', ARGV[i + 3], 'blob', ARGV[i + 4])
  end
  i = i + 5
end
local last = i + 4 * tonumber(ARGV[i])
i = i + 1
while i <= last do
  local id, held, due, is_expired = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3] == '1'
  if call('HSETNX', waiting, id, held) == 1 then
    call('ZADD', is_expired and forget or expiry, due, id)
    if is_expired then
      counters[EXPIRED_BYTES] = counters[EXPIRED_BYTES] + #held - 16
    else
      counters[WAITING], counters[WAITING_BYTES] = counters[WAITING] + 1, counters[WAITING_BYTES] + #held - 16
    end
    plan(due)
  end
  i = i + 4
end
while i < #ARGV do
  local id, value = ARGV[i], ARGV[i + 1]
  if call('HSETNX', applied, id, value) == 1 then
    counters[REMEMBERED] = call('RPUSH', remembered, id)
    counters[REMEMBERED_BYTES] = counters[REMEMBERED_BYTES] + #value - 8
    plan(struct.unpack('<d', value) + remembered_for)
  end
  i = i + 2
end
call('HSET', head, 'counters', struct.pack(COUNTERS, unpack(counters, 1, 9)))
if later ~= '' then call('HSET', head, 'seal', later) end
return 1
