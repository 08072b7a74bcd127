-- ARGV: number of rounds, limit of the blobs' bytes
-- Returns {'gone'} or {'last', the session's tip, the note of its seal, the tip before the oldest of these entries, the
--   entries, newest first}.

local rounds, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2])
local at, start = tip_and('base')
if not at then return {'gone'} end
local answer, covered, bytes = {'last', at, call('HGET', head, 'seal'), start}, 0, 0
-- Start with small chunks: an entry may be large, and a single one may be enough.
local chunk, to = 1, '+'
repeat
  local entries = call('XREVRANGE', journal, to, '-', 'COUNT', chunk)
  local is_full = #entries < chunk
  for _, entry in ipairs(entries) do
    bytes = bytes + #entry[2][8]
    if covered >= rounds or bytes > most_bytes then
      answer[4], is_full = round_of(entry[1]) .. ':' .. entry[2][2], true
      break
    end
    answer[#answer + 1] = entry
    covered, to = covered + entry[2][4], '(' .. entry[1]
  end
  chunk = math.min(2 * chunk, 64)
until is_full
return answer
