-- ARGV: note, record, summary, summary_round, told, created_at, updated_at, first, base, tip, journal bytes, tail bytes, how many
--   never came; then, if there is a snapshot: its tip, when it was made, its bytes
-- Answers 1, or 0 where a session that is not sealed for good has the name.

local note, record, summary, summary_round, told, created_at, updated_at, first, base, tip, journal_bytes, tail_bytes,
  never_came, snapshot, snapshot_at, blob = unpack(ARGV)
local there = call('HMGET', head, 'tip', 'sealed_until')
if there[1] and tonumber(there[2] or 0) ~= NEVER then return 0 end
call('UNLINK', unpack(KEYS))
call('HSET', head, 'record', record, 'summary', summary, 'created_at', created_at, 'first', first, 'tip', tip, 'base', base,
  'summary_round', summary_round, 'told', told, 'tail_bytes', tail_bytes, 'seal', note, 'sealed_until', NEVER,
  'counters', struct.pack(COUNTERS, tonumber(updated_at), NEVER, tonumber(journal_bytes), 0, 0, 0, 0, 0, tonumber(never_came)))
if snapshot then
  call('SET', snap, blob)
  call('HSET', head, 'snapshot', snapshot, 'snapshot_at', snapshot_at, 'snapshot_bytes', #blob)
end
return 1
