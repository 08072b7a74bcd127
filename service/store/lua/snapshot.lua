-- ARGV: uid, round, blob, now, how many events to keep behind the snapshot
-- Answers 1, or 0 where nothing was kept.

if not round_of(ARGV[1]) then return 0 end
local round = tonumber(ARGV[2])
if round <= tonumber(call('HGET', head, 'snapshot_round')) then return 0 end
local id = entry_id(round)
local is_end_of_event = round == 0 or #call('XRANGE', journal, id, id) == 1
if not is_end_of_event then return 0 end

local bytes, newer = 0, events_after(round)
for _, event in ipairs(newer) do
  bytes = bytes + #event[2][8]
end
call('SET', snap, ARGV[3])
call('HSET', head, 'snapshot_round', ARGV[2], 'snapshot_at', ARGV[4], 'snapshot_bytes', #ARGV[3], 'journal_bytes', bytes)
call('XTRIM', journal, 'MAXLEN', #newer + tonumber(ARGV[5]))
return 1
