-- Stands in front of every other script here: what they share.
--
-- KEYS, the same for all scripts; one hash tag, so one slot:
--   1 head      hash     uid, meta, round, times and counters; nothing expires or is forgotten before `due_at`
--   2 journal   stream   one entry an event, its id is "<last round>-0"
--   3 snap      string   the latest snapshot
--   4 waiting   hash     id -> packed prediction (f64 expires_at, f64 forget_at, blob), the expired ones included while they are remembered
--   5 expiry    zset     id -> when it expires; those that wait
--   6 forget    zset     id -> when it is forgotten; those that have expired
--   7 applied   hash     id -> answer
--   8 order     list     the applied ids, oldest first
-- Times come as text and go to commands as text: as Lua numbers they would lose digits.

local head, journal, snap, waiting, expiry, forget, applied, order = unpack(KEYS)
local call = redis.call

-- The round, and another field of the head as text or false; nothing where the session is not this one.
local function round_of(uid, field)
  local found = call('HMGET', head, 'uid', 'round', field or 'round')
  if found[1] == uid then return tonumber(found[2]), found[3] end
end

local function entry_id(round)
  return string.format('%d-0', round)
end

local function events_after(round)
  return call('XRANGE', journal, '(' .. entry_id(round), '+')
end

-- Whether the events are what is missing from `after` to the head.
local function reach(events, after, round)
  if #events == 0 then return after == round end
  local first, fields = events[1][1], events[1][2]
  return tonumber(first:match('^%d+')) - tonumber(fields[2]) == after
end

-- {head, number waiting, the round before the events, events, snapshot or nil}
local function reading(after)
  local found = call('HMGET', head, 'round', 'snapshot_round')
  local events = after >= 0 and events_after(after) or {}
  local snapshot = false
  if not reach(events, after, tonumber(found[1])) then
    after = math.max(tonumber(found[2]), 0)
    events = events_after(after)
    snapshot = call('GET', snap)
  end
  return {call('HGETALL', head), call('ZCARD', expiry), after, events, snapshot}
end
