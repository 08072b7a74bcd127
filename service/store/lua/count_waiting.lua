-- ARGV: durations in microseconds
-- Answers {'gone'} or {'counted', for each duration how many of those that wait expire within it}.

if not tip_and() then return {'gone'} end
local now = now_us()
local answer = {'counted'}
for _, duration in ipairs(ARGV) do
  answer[#answer + 1] = call('ZCOUNT', expiry, now + 1, now + duration)
end
return answer
