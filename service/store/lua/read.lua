-- ARGV: uid or '' for any, after
-- Answers {'gone'} or {'reading', reading}.

if call('EXISTS', head) == 0 then return {'gone'} end
if ARGV[1] ~= '' and not round_of(ARGV[1]) then return {'gone'} end
return {'reading', reading(tonumber(ARGV[2]))}
