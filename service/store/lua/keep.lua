-- ARGV: digest of the session's first tip, limit of checkpoints, limit of their bytes, name, tip, time ('' for now), note,
--   state
-- Returns 1, 0 if there is no such session, or -1 if there is no room.

local identity, most, most_bytes, name, tip, at, note, state = unpack(ARGV)
local found, seal, sealed_until = tip_and('seal')
if not found or not begins_at(identity) then return 0 end
local now = now_us()
if sealed_until > now and not (sealed_until == NEVER and seal == note) then return sealed() end
local number, bytes = 0, #state
local all = call('HGETALL', kept)
for i = 1, #all, 2 do
  if all[i] ~= name then number, bytes = number + 1, bytes + all[i + 1]:match('^%d+:(%d+)') end
end
if number >= tonumber(most) or bytes > tonumber(most_bytes) then return -1 end
if at == '' then at = string.format('%.0f', now) end
call('HSET', kept, name, at .. ':' .. #state .. ':' .. tip)
call('HSET', states, name, state)
return 1
