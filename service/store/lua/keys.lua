-- All API keys are one hash: id -> record, and under the empty field the version, which differs after each change.
--   ring    version                    nothing if the version is current; else {version, all fields and values}
--   add     version, id, record, most  1: added, or the same record exists; 0: another key has the id; -1: limit reached
--   revoke  version, id                1: removed; 0: no such key
local keys, call = KEYS[1], redis.call
local verb, version, id, record, most = unpack(ARGV)

if verb == 'ring' then
  local now = call('HGET', keys, '') or ''
  if now == version then return false end
  return {now, call('HGETALL', keys)}
end
if verb == 'add' then
  local existing = call('HGET', keys, id)
  if existing then return existing == record and 1 or 0 end
  -- One of the fields is the version.
  if call('HLEN', keys) > tonumber(most) then return -1 end
  call('HSET', keys, id, record, '', version)
  return 1
end
local existed = call('HDEL', keys, id)
if existed == 1 then call('HSET', keys, '', version) end
return existed
