-- ARGV: uid, meta, created_at
-- Answers 1, or 0 where another session has the name. The same uid again is this command sent twice.

local uid = call('HGET', head, 'uid')
if uid then return uid == ARGV[1] and 1 or 0 end
call('HSET', head, 'uid', ARGV[1], 'meta', ARGV[2], 'created_at', ARGV[3], 'round', 0, 'snapshot_round', -1)
return 1
