-- ARGV: durations in microseconds
-- Returns {'gone'} or {'counted', for each duration the number of waiting predictions that expire within it}.

if not tip_and() then return {'gone'} end
local now = now_us()
local answer = {'counted'}
for _, duration in ipairs(ARGV) do
  answer[#answer + 1] = call('ZCOUNT', expiry, now + 1, now + duration)
end
return answer
