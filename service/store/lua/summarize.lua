-- ARGV: digest of the session's first tip, round, summary
-- Returns 1, or 0 if there is no such session, or if it has the summary of a later round.

local identity, round, summary = unpack(ARGV)
local tip, noted = tip_and('summary_round')
if not tip or not begins_at(identity) or tonumber(noted) > tonumber(round) then return 0 end
call('HSET', head, 'summary', summary, 'summary_round', round)
return 1
