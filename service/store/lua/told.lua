-- ARGV: digest of the session's first tip, how many alarms were delivered
-- Answers 1, or 0 where there is no such session, or as many were delivered before.

local identity, count = unpack(ARGV)
local tip, noted = tip_and('told')
if not tip or not begins_at(identity) or tonumber(noted or 0) >= tonumber(count) then return 0 end
call('HSET', head, 'told', count)
return 1
