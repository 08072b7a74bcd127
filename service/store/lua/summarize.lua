-- ARGV: a tip of the session, summary
-- Returns 1, or 0 if there is no session with this tip on its chain, or if it has the summary of a later round.

local at, summary = unpack(ARGV)
local tip, noted = tip_and('summary_round')
if not tip or not is_on_chain(at) or tonumber(noted) > tonumber(round_of(at)) then return 0 end
call('HSET', head, 'summary', summary, 'summary_round', round_of(at))
return 1
