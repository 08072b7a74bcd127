-- ARGV: note
-- Answers 1, or 0 where it is sealed with another note.

local found, seal, sealed_until = tip_and('seal')
if not found or sealed_until > now_us() and seal ~= ARGV[1] then return 0 end
call('HDEL', head, 'seal', 'sealed_until')
return 1
