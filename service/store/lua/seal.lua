-- ARGV: note, duration in microseconds ('' for good), 1 to only replace another seal, the note of that seal
-- Returns 1, or 0 if the session was not sealed.

local note, duration, is_over, over = unpack(ARGV)
local found, seal, sealed_until = tip_and('seal')
if not found then return 0 end
local now = now_us()
local is_sealed = sealed_until > now
if is_sealed and seal ~= note and not (is_over == '1' and seal == over) then return 0 end
if not is_sealed and is_over == '1' then return 0 end
call('HSET', head, 'seal', note, 'sealed_until', duration == '' and NEVER or now + duration)
return 1
