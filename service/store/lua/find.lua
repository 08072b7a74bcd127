-- ARGV: retention of answers in microseconds, the caller's tip, id
-- Returns {'gone'} or {'found', what is stored under the id or nil, a reading or nil if the caller is up to date}.

local remembered_for, after, id = unpack(ARGV)
local tip = tip_and()
if not tip then return {'gone'} end
return {'found', what_is_under(id, now_us(), tonumber(remembered_for)) or false, tip ~= after and reading(after)}
