-- ARGV: a round, the round of a later entry, limit of entries, limit of their bytes
-- Returns the entries after the one up to the other, oldest first; about as many as both limits allow, and one at least.

local from, to, most, most_bytes = '(' .. ARGV[1] .. '-0', ARGV[2] .. '-0', tonumber(ARGV[3]), tonumber(ARGV[4])
local answer, bytes, chunk, is_last = {}, 0, 1, false
repeat
  local entries = call('XRANGE', journal, from, to, 'COUNT', chunk)
  for _, entry in ipairs(entries) do
    answer[#answer + 1], bytes, from = entry, bytes + #entry[2][8], '(' .. entry[1]
  end
  is_last = #entries < chunk
  chunk = math.min(2 * chunk, 64)
until is_last or #answer >= most or bytes >= most_bytes
return answer
