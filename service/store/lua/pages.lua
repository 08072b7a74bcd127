-- Pages of a long journal, inserted between session.lua and the scripts that read one.

-- The entries after one round, up to another, oldest first: about as many as both limits allow, and at least one if there
-- is any. Rounds are text.
local function page(after, to, most, most_bytes)
  local answer, bytes, from, chunk, is_last = {}, 0, '(' .. after .. '-0', 1, false
  repeat
    local entries = call('XRANGE', journal, from, to .. '-0', 'COUNT', chunk)
    for _, entry in ipairs(entries) do
      answer[#answer + 1], bytes, from = entry, bytes + #entry[2][8], '(' .. entry[1]
    end
    is_last = #entries < chunk
    chunk = math.min(2 * chunk, 64)
  until is_last or #answer >= most or bytes >= most_bytes
  return answer
end
