-- ARGV: note, record, summary, summary_round, told, created_at, updated_at, first, base, tip, journal bytes, tail bytes,
--   never_came; with a snapshot also its tip, its time, its bytes
-- Returns 1, or 0 if the name belongs to a session that is not sealed for good.

local note, record, summary, summary_round, told, created_at, updated_at, first, base, tip, journal_bytes, tail_bytes,
  never_came, snapshot, snapshot_at, blob = unpack(ARGV)
local existing = call('HMGET', head, 'tip', 'sealed_until')
if existing[1] and tonumber(existing[2] or 0) ~= NEVER then return 0 end
call('UNLINK', unpack(KEYS))
call('HSET', head, 'record', record, 'summary', summary, 'created_at', created_at, 'first', first, 'tip', tip, 'base', base,
  'summary_round', summary_round, 'told', told, 'tail_bytes', tail_bytes, 'seal', note, 'sealed_until', NEVER,
  'counters', struct.pack(COUNTERS, tonumber(updated_at), NEVER, tonumber(journal_bytes), 0, 0, 0, 0, 0, tonumber(never_came)))
if snapshot then
  call('SET', snap, blob)
  call('HSET', head, 'snapshot', snapshot, 'snapshot_at', snapshot_at, 'snapshot_bytes', #blob)
end
return 1
