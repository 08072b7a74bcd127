-- All templates are one hash: name -> record, and under the empty field the version, which differs after each change.
--   all   version                      nothing if the version is current; else {version, all fields and values}
--   put   version, name, record, most  1: kept; 0: limit reached
--   drop  version, name                1: removed; 0: no such template
local templates, call = KEYS[1], redis.call
local verb, version, name, record, most = unpack(ARGV)

if verb == 'all' then
  local now = call('HGET', templates, '') or ''
  if now == version then return false end
  return {now, call('HGETALL', templates)}
end
if verb == 'put' then
  -- One of the fields is the version.
  local is_new = call('HEXISTS', templates, name) == 0
  if is_new and call('HLEN', templates) > tonumber(most) then return 0 end
  call('HSET', templates, name, record, '', version)
  return 1
end
local existed = call('HDEL', templates, name)
if existed == 1 then call('HSET', templates, '', version) end
return existed
