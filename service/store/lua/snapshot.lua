-- ARGV: limit of entries behind the snapshot, limit of their bytes, tip, blob
-- Returns 1, or 0 if the snapshot was not kept.

local most_entries, most_bytes, tip, blob = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local CHUNK = 32
local at, snapshot = tip_and('snapshot')
local round = round_of(tip)
if not at or snapshot and tonumber(round) <= tonumber(round_of(snapshot)) or not is_on_chain(tip) then return 0 end

local journal_bytes, from = 0, '(' .. round .. '-0'
repeat
  local entries = call('XRANGE', journal, from, '+', 'COUNT', CHUNK)
  for _, entry in ipairs(entries) do
    journal_bytes, from = journal_bytes + #entry[2][8], '(' .. entry[1]
  end
until #entries < CHUNK

-- The tail goes back from the snapshot's entry while both limits hold. The first entry beyond them is the new base. The
-- chunks begin small, since each entry is copied into this script: of large blocks one is often enough.
local tail_entries, tail_bytes, to, base, chunk = 0, 0, round .. '-0', nil, 1
repeat
  local entries, asked = call('XREVRANGE', journal, to, '-', 'COUNT', chunk), chunk
  chunk = math.min(2 * chunk, CHUNK)
  for _, entry in ipairs(entries) do
    local bytes = tail_bytes + #entry[2][8]
    if tail_entries == most_entries or bytes > most_bytes then
      base = entry
      break
    end
    tail_entries, tail_bytes, to = tail_entries + 1, bytes, '(' .. entry[1]
  end
until base or #entries < asked

local counters = {struct.unpack(COUNTERS, call('HGET', head, 'counters'))}
counters[3] = journal_bytes
call('SET', snap, blob)
if base then
  local base_round = round_of(base[1])
  call('XTRIM', journal, 'MINID', '=', base_round .. '-1')
  call('HSET', head, 'base', base_round .. ':' .. base[2][2])
end
call('HSET', head, 'snapshot', tip, 'snapshot_at', now_us(), 'snapshot_bytes', #blob, 'tail_bytes', tail_bytes,
  'counters', struct.pack(COUNTERS, unpack(counters, 1, 9)))
return 1
