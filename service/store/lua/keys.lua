-- All API keys are one hash: id -> record, and under the empty field the version, another after each change.
--   ring    version                    nothing if it is still that one; else {version, all fields and values}
--   add     version, id, record, most  1: kept, or there already; 0: another has the id; -1: there are so many
--   revoke  version, id                1: gone; 0: there was none
local keys, call = KEYS[1], redis.call
local verb, version, id, record, most = unpack(ARGV)

if verb == 'ring' then
  local now = call('HGET', keys, '') or ''
  if now == version then return false end
  return {now, call('HGETALL', keys)}
end
if verb == 'add' then
  local there = call('HGET', keys, id)
  if there then return there == record and 1 or 0 end
  -- One field is the version.
  if call('HLEN', keys) > tonumber(most) then return -1 end
  call('HSET', keys, id, record, '', version)
  return 1
end
local was_there = call('HDEL', keys, id)
if was_there == 1 then call('HSET', keys, '', version) end
return was_there
