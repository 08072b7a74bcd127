-- ARGV: note, digest of the first tip that the session must have, '' for any
-- The keys of the session aside follow those of the session.
-- Returns 1, or 0 if there is no such session, it is sealed with another note, or the one aside has no place.

local note, identity, own = ARGV[1], ARGV[2] or '', #KEYS / 2
local found, seal, sealed_until = tip_and('seal')
local arrived = call('HMGET', KEYS[own + 1], 'seal', 'sealed_until')
if arrived[1] == note and tonumber(arrived[2]) == NEVER then
  if not found or sealed_until ~= NEVER then return 0 end
  for i = 1, own do
    call('UNLINK', KEYS[i])
    if call('EXISTS', KEYS[own + i]) == 1 then call('RENAME', KEYS[own + i], KEYS[i]) end
  end
  seal = note
end
if not found or sealed_until > now_us() and seal ~= note or identity ~= '' and not begins_at(identity) then return 0 end
call('HDEL', head, 'seal', 'sealed_until')
return 1
