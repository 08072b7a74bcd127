-- ARGV: a tip of the session, number of delivered alarms
-- Returns 1, or 0 if there is no session with this tip on its chain, or if the number is not above the one noted before.

local at, count = unpack(ARGV)
local tip, noted = tip_and('told')
if not tip or not is_on_chain(at) or tonumber(noted or 0) >= tonumber(count) then return 0 end
call('HSET', head, 'told', count)
return 1
