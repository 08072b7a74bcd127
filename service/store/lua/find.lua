-- ARGV: how long an answer is remembered in microseconds, the caller's tip, id
-- Answers {'gone'} or {'found', what is under the id or nil, reading or nil where the caller has missed nothing}.

local remembered_for, after, id = unpack(ARGV)
local tip = tip_and()
if not tip then return {'gone'} end
return {'found', what_is_under(id, now_us(), tonumber(remembered_for)) or false, tip ~= after and reading(after)}
