-- ARGV: 'held', 'expired' or 'remembered', the offset of the first item, limit of items, limit of their bytes
-- Returns {'gone'} or {'luggage', the offset of the next page, 0 if there is none, then for each item: id, value}.

local part, from, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not tip_and() then return {'gone'} end
local ids
if part == 'remembered' then
  ids = call('LRANGE', remembered, from, from + most)
else
  ids = call('ZRANGE', part == 'held' and expiry or forget, from, from + most)
end
local answer, bytes, times = {'luggage', 0}, 0, part == 'remembered' and 8 or 16
for i, id in ipairs(ids) do
  local value = call('HGET', part == 'remembered' and applied or waiting, id)
  bytes = bytes + (value and #value - times or 0)
  if i > 1 and (i > most or bytes > most_bytes) then
    answer[2] = from + i - 1
    break
  end
  -- Redis may have evicted the values, but not the list of their ids.
  if value then answer[#answer + 1], answer[#answer + 2] = id, value end
end
return answer
