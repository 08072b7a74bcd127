-- ARGV: 1 to remove only what an evicted head left behind; the expected tip, '' for any;
--   1 to keep the session while a prediction waits for its truth; the note of the permanent seal that it must have while
--   none is aside, '' for any; its first tip, '' for any
-- The keys of the session aside follow those of the session.
-- Returns 1 if the session existed and the conditions hold, else 0.

local existed = call('EXISTS', head)
if (ARGV[2] or '') ~= '' and call('HGET', head, 'tip') ~= ARGV[2] then return 0 end
if ARGV[3] == '1' and call('ZCOUNT', expiry, now_us() + 1, '+inf') > 0 then return 0 end
if (ARGV[5] or '') ~= '' and call('HGET', head, 'first') ~= ARGV[5] then return 0 end
if (ARGV[4] or '') ~= '' then
  local found = call('HMGET', head, 'seal', 'sealed_until')
  if found[1] ~= ARGV[4] or tonumber(found[2] or 0) ~= NEVER or call('EXISTS', KEYS[#KEYS / 2 + 1]) == 1 then return 0 end
end
local held = redis.pcall('HGET', head, 'sealed_until') -- a damaged session can be deleted too
local sealed_until = type(held) == 'string' and tonumber(held) and seal_end(held) or 0
if sealed_until ~= NEVER and sealed_until > now_us() then return sealed() end
if ARGV[1] ~= '1' or existed == 0 then call('UNLINK', unpack(KEYS)) end
return existed
