-- ARGV: uid, id
-- Answers {'gone'}, {'applied', id, answer}, {'waiting', packed prediction} or {'unknown'}.

if not round_of(ARGV[1]) then return {'gone'} end
local answer = call('HGET', applied, ARGV[2])
if answer then return {'applied', ARGV[2], answer} end
local held = call('HGET', waiting, ARGV[2])
if held then return {'waiting', held} end
return {'unknown'}
