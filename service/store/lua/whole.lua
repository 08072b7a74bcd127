-- Returns {'gone'} or {'whole', a whole reading, first, base}.

if not tip_and() then return {'gone'} end
local from = call('HMGET', head, 'first', 'base')
return {'whole', reading(), from[1], from[2]}
