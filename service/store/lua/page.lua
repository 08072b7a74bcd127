-- ARGV: two rounds, limit of entries, limit of their bytes
-- Returns the entries after the first round, up to the second, oldest first: about as many as both limits allow, and at
--   least one if there is any.

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
