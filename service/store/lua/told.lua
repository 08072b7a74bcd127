-- ARGV: how many alarms were delivered
-- Answers 1, or 0 where there is no session, or as many were delivered before.

local tip, noted = tip_and('told')
if not tip or tonumber(noted or 0) >= tonumber(ARGV[1]) then return 0 end
call('HSET', head, 'told', ARGV[1])
return 1
