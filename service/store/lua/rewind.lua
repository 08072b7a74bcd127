-- ARGV: the session's expected tip, the tip to go back to, the number of alarms until then
-- Returns 1, or 0 if nothing was taken back.

local tip, to, alarms = unpack(ARGV)
local at, packed, sealed_until = tip_and('counters')
if at ~= tip then return 0 end
if sealed_until > now_us() then return sealed() end
local from = call('HMGET', head, 'snapshot', 'first', 'summary_round', 'told')
local start = from[1] or from[2]
if to ~= start and (tonumber(round_of(to)) <= tonumber(round_of(start)) or not has_entry(to)) then return 0 end

local counters = {struct.unpack(COUNTERS, packed)}
local taken = entries_after(to)
local is_taken, oldest = {}, false
for _, entry in ipairs(taken) do
  local id, blob = entry[2][6], entry[2][8]
  counters[3] = counters[3] - #blob
  is_taken[id] = true
  oldest = oldest or call('LPOS', remembered, id, 'RANK', -1)
  if not oldest then call('HDEL', applied, id) end -- Redis may have evicted the list of the ids, but not their answers
end
-- Of the ids that were remembered since, those of no entry are the progress of bodies.
local since, doomed = oldest and call('LRANGE', remembered, oldest, -1) or {}, {}
for _, id in ipairs(since) do
  if is_taken[id] or call('HEXISTS', applied, id .. '0') == 1 then doomed[#doomed + 1] = id end
end
for _, id in ipairs(doomed) do
  counters[7], counters[8] = counters[7] - 1, counters[8] - math.max(call('HSTRLEN', applied, id) - 8, 0)
  call('HDEL', applied, id)
  call('LREM', remembered, -1, id)
end
if #taken > 0 then
  -- A Redis stream accepts no id below its highest one, even a deleted one, so the journal is rewritten.
  local kept = call('XRANGE', journal, '-', round_of(to) .. '-0')
  call('DEL', journal)
  for _, entry in ipairs(kept) do
    call('XADD', journal, entry[1], unpack(entry[2]))
  end
end
if tonumber(from[3] or 0) > tonumber(round_of(to)) then call('HSET', head, 'summary_round', round_of(to)) end
if tonumber(from[4] or 0) > tonumber(alarms) then call('HSET', head, 'told', alarms) end
call('HSET', head, 'tip', to, 'counters', struct.pack(COUNTERS, unpack(counters, 1, 9)))
return 1
