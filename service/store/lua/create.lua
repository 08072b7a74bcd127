-- ARGV: uid, meta, created_at, round, the snapshot at this round if there is one
-- Answers 1, or 0 where another session has the name. The same uid again is this command sent twice.

local uid = call('HGET', head, 'uid')
if uid then return uid == ARGV[1] and 1 or 0 end
call('HSET', head, 'uid', ARGV[1], 'meta', ARGV[2], 'created_at', ARGV[3], 'round', ARGV[4], 'snapshot_round', -1)
if ARGV[5] then
  call('SET', snap, ARGV[5])
  call('HSET', head, 'snapshot_round', ARGV[4], 'snapshot_at', ARGV[3], 'snapshot_bytes', #ARGV[5])
end
return 1
