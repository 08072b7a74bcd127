-- ARGV: record, summary, number of delivered alarms, tip, optionally the snapshot at this tip
-- Returns 1, or 0 if another session has the name. An existing session with the same first tip means a retried command.

local record, summary, told, tip, snapshot = unpack(ARGV)
if call('EXISTS', head) == 1 then return call('HGET', head, 'first') == tip and 1 or 0 end
local now = now_us()
call('UNLINK', unpack(KEYS)) -- what an evicted head left behind
call('HSET', head, 'record', record, 'summary', summary, 'created_at', now, 'first', tip, 'tip', tip, 'base', tip,
  'summary_round', round_of(tip), 'told', told, 'counters', struct.pack(COUNTERS, 0, NEVER, 0, 0, 0, 0, 0, 0, 0))
if snapshot then
  call('SET', snap, snapshot)
  call('HSET', head, 'snapshot', tip, 'snapshot_at', now, 'snapshot_bytes', #snapshot)
end
return 1
