-- ARGV: the session's expected tip, record, the new tip, its snapshot, summary, number of delivered alarms,
--   1 to replace nothing while a prediction waits for its truth
-- Returns 1, or 0 if nothing was replaced. If the new tip is on the chain already, the command is a retry.

local tip, record, to, blob, summary, told, unless_waiting = unpack(ARGV)
local at, packed, sealed_until = tip_and('counters')
if not at then return 0 end
if sealed_until > now_us() then return sealed() end
if at ~= tip then return is_on_chain(to) and 1 or 0 end
if unless_waiting == '1' and call('ZCOUNT', expiry, now_us() + 1, '+inf') > 0 then return 0 end
local counters = {struct.unpack(COUNTERS, packed)}
counters[3] = 0
call('UNLINK', journal)
call('SET', snap, blob)
call('HSET', head, 'record', record, 'summary', summary, 'summary_round', round_of(to), 'told', told, 'tip', to, 'base', to,
  'snapshot', to, 'snapshot_at', now_us(), 'snapshot_bytes', #blob, 'tail_bytes', 0,
  'counters', struct.pack(COUNTERS, unpack(counters, 1, 9)))
return 1
