-- ARGV: limit of entries behind the snapshot, limit of their bytes, tip, blob
-- Returns 1, or 0 if the snapshot was not kept.

local most_entries, most_bytes, tip, blob = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local CHUNK = 32
local at, snapshot = tip_and('snapshot')
local round = round_of(tip)
if not at or snapshot and tonumber(round) <= tonumber(round_of(snapshot)) or not is_on_chain(tip) then return 0 end

-- Call `visit` with each entry and its bytes, until it returns true. The chunks begin small, since each entry is copied
-- into this script, and often one large block is enough.
local function walk(command, from, to, visit)
  local chunk, entries, asked = 1, nil, nil
  repeat
    entries, asked = call(command, journal, from, to, 'COUNT', chunk), chunk
    for _, entry in ipairs(entries) do
      if visit(entry, #entry[2][8]) then return end
      from = '(' .. entry[1]
    end
    chunk = math.min(2 * chunk, CHUNK)
  until #entries < asked
end

local counters = {struct.unpack(COUNTERS, call('HGET', head, 'counters'))}
local number_after, journal_bytes = 0, 0
walk('XRANGE', '(' .. round .. '-0', '+', function(_, bytes)
  number_after, journal_bytes = number_after + 1, journal_bytes + bytes
end)

-- The tail is the newest entries, up to the snapshot's, within both limits; the entry before it is the new base. The search
-- starts at the nearer end, so that a snapshot reads neither a tail of a gigabyte nor all large blocks before it.
local tail_entries = call('XLEN', journal) - number_after
local tail_bytes = tonumber(call('HGET', head, 'tail_bytes') or 0) + counters[3] - journal_bytes
local base
if tail_entries > 2 * most_entries or tail_bytes > 2 * most_bytes then
  tail_entries, tail_bytes = 0, 0
  walk('XREVRANGE', round .. '-0', '-', function(entry, bytes)
    if tail_entries == most_entries or tail_bytes + bytes > most_bytes then
      base = entry
      return true
    end
    tail_entries, tail_bytes = tail_entries + 1, tail_bytes + bytes
  end)
elseif tail_entries > most_entries or tail_bytes > most_bytes then
  walk('XRANGE', '-', round .. '-0', function(entry, bytes)
    base, tail_entries, tail_bytes = entry, tail_entries - 1, tail_bytes - bytes
    return tail_entries <= most_entries and tail_bytes <= most_bytes
  end)
end
-- Otherwise the bytes of entries that Redis has evicted would count for ever.
if tail_entries == 0 then tail_bytes = 0 end

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
