-- ARGV: limit of entries, limit of their bytes
-- Returns {'gone'} or {'whole', a whole reading, first, base, the entries after the base, within the limits}.

local tip = tip_and()
if not tip then return {'gone'} end
local from = call('HMGET', head, 'first', 'base')
local entries = page(round_of(from[2]), round_of(tip), tonumber(ARGV[1]), tonumber(ARGV[2]))
return {'whole', reading(), from[1], from[2], entries}
