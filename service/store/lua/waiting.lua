-- ARGV: limit of items, limit of their bytes; optionally the place to continue after: an expiry time and an id
-- Returns {'gone'} or {'waiting', now, 1 if there are more, then for each: id, expiry time, blob}.

local most, most_bytes, after, after_id = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
if not tip_and() then return {'gone'} end
local now = now_us()

-- The order of a sorted set, which compares bytes; `<` would use the server's locale.
local function is_before(one, other)
  for i = 1, math.min(#one, #other) do
    local byte, other_byte = one:byte(i), other:byte(i)
    if byte ~= other_byte then return byte < other_byte end
  end
  return #one < #other
end

-- The number of items before the page: expired ones, or those up to the place. Many may share one expiry time, hence the
-- binary search.
local rank = call('ZCOUNT', expiry, '-inf', now)
if after and after > now then
  rank = call('ZCOUNT', expiry, '-inf', after - 1)
  local to = call('ZCOUNT', expiry, '-inf', after)
  while rank < to do
    local middle = math.floor((rank + to) / 2)
    if is_before(after_id, call('ZRANGE', expiry, middle, middle)[1]) then to = middle else rank = middle + 1 end
  end
end

local answer, bytes, found = {'waiting', now, 0}, 0, nil
repeat
  found = call('ZRANGE', expiry, rank, rank + most, 'WITHSCORES')
  for i = 1, #found, 2 do
    local held = call('HGET', waiting, found[i])
    if held then -- else Redis has evicted the predictions, but not their times
      bytes = bytes + #held - 16
      if #answer > 3 and (#answer == 3 + 3 * most or bytes > most_bytes) then
        answer[3] = 1
        return answer
      end
      answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = found[i], found[i + 1], held:sub(17)
    end
  end
  rank = rank + most + 1
until #found <= 2 * most
return answer
