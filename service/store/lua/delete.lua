-- ARGV: 1 to remove only what an evicted head left behind; the tip that the session is to be at, if it matters
-- Answers 1 where there was a session, and it was at this tip.

local existed = call('EXISTS', head)
if ARGV[2] and call('HGET', head, 'tip') ~= ARGV[2] then return 0 end
local held = redis.pcall('HGET', head, 'sealed_until') -- what is damaged can be deleted too
local sealed_until = type(held) == 'string' and tonumber(held) or 0
if sealed_until ~= NEVER and sealed_until > now_us() then return sealed() end
if ARGV[1] ~= '1' or existed == 0 then call('UNLINK', unpack(KEYS)) end
return existed
