-- A token bucket, by this server's clock. ARGV: owed (if negative, given back), wanted, rate, burst. Returns the tokens taken
-- and the seconds to wait, as text, since Redis truncates numbers to integers. A bucket expires when it would be full again,
-- since a new one is full.
local bucket, call = KEYS[1], redis.call
local owed, wanted, rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local kept = call('HMGET', bucket, 'tokens', 'at')
local tokens, at = tonumber(kept[1] or burst), tonumber(kept[2] or now)
tokens = math.min(burst, math.min(burst, tokens + math.max(0, now - at) * rate) - owed)
local granted, wait = 0, 0
if tokens >= 1 then granted = math.min(tokens, wanted) else wait = (1 - tokens) / rate end
tokens = tokens - granted
call('HSET', bucket, 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', now))
call('PEXPIRE', bucket, math.ceil(math.min((burst - tokens) / rate, 1e9) * 1000) + 1000)
return {string.format('%.17g', granted), string.format('%.17g', wait)}
