-- ARGV: digest of the session's first tip, number of delivered alarms
-- Returns 1, or 0 if there is no such session, or if the number is not above the one noted before.

local identity, count = unpack(ARGV)
local tip, noted = tip_and('told')
if not tip or not begins_at(identity) or tonumber(noted or 0) >= tonumber(count) then return 0 end
call('HSET', head, 'told', count)
return 1
