-- ARGV: name of a checkpoint
-- Returns 1, or 0 if there is none.

local found, _, sealed_until = tip_and()
if not found then return 0 end
if sealed_until > now_us() then return sealed() end
call('HDEL', states, ARGV[1])
return call('HDEL', kept, ARGV[1])
