-- ARGV: uid, expected, now, how many applied ids to keep, then for each event: round, count, id or '', answer, blob
-- Answers {'gone'}, {'replayed'}, {'applied', id, answer}, {'behind', reading} or 'appended'.

local FIRST, WIDTH = 5, 5
local round, journal_bytes = round_of(ARGV[1], 'journal_bytes')
if not round then return {'gone'} end
local last = ARGV[#ARGV - WIDTH + 1]

local function is_in_journal(at)
  local id = entry_id(ARGV[at])
  local entry = call('XRANGE', journal, id, id)[1]
  if not entry then return false end
  for field = 1, WIDTH - 1 do
    if entry[2][2 * field] ~= ARGV[at + field] then return false end
  end
  return true
end

local function are_in_journal()
  for at = FIRST, #ARGV, WIDTH do
    if not is_in_journal(at) then return false end
  end
  return true
end

if tonumber(last) <= round and are_in_journal() then return {'replayed'} end
for at = FIRST, #ARGV, WIDTH do
  local answer = call('HGET', applied, ARGV[at + 2])
  if answer then return {'applied', ARGV[at + 2], answer} end
end
local expected = tonumber(ARGV[2])
if round ~= expected then return {'behind', reading(expected)} end

local bytes, remembered = tonumber(journal_bytes or 0), 0
for at = FIRST, #ARGV, WIDTH do
  local count, id, answer, blob = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  call('XADD', journal, entry_id(ARGV[at]), 'count', count, 'id', id, 'answer', answer, 'blob', blob)
  bytes = bytes + #blob
  if id ~= '' then
    if call('HDEL', waiting, id) == 1 and call('ZREM', expiry, id) == 0 then call('ZREM', forget, id) end
    call('HSET', applied, id, answer)
    remembered = call('RPUSH', order, id)
  end
end
for _ = tonumber(ARGV[4]) + 1, remembered do
  call('HDEL', applied, call('LPOP', order))
end
call('HSET', head, 'round', last, 'updated_at', ARGV[3], 'journal_bytes', string.format('%d', bytes))
return 'appended'
