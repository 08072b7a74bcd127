-- Shared definitions, prepended to every script about a session.
--
-- KEYS, the same for all these scripts; one hash tag, so one slot:
--   1 head        hash    record, summary, summary_round, told, created_at; the tips first, tip, base (the tip before the
--                         oldest entry kept) and snapshot; snapshot_at, snapshot_bytes, tail_bytes; seal, sealed_until
--                         (2^53: for good); counters, packed: see COUNTERS
--   2 journal     stream  one item per entry, its id "<round>-0"; fields digest, count, id, blob
--   3 snap        string  the latest snapshot
--   4 waiting     hash    id -> f64 expires at, f64 forgotten at, blob; also of expired predictions while remembered
--   5 expiry      zset    id -> expiry time, of waiting predictions
--   6 forget      zset    id -> time at which it is forgotten, of expired predictions
--   7 applied     hash    id -> f64 applied at, answer
--   8 remembered  list    the applied ids, oldest first
--   9 kept        hash    checkpoint -> "<made at>:<bytes>:<tip>"
--  10 states      hash    checkpoint -> state
-- A tip is "<round>:<digest>". Times are whole microseconds since the epoch by this server's clock, which a double holds
-- exactly. Lua passes a number to a command with all its digits, but `..` rounds it: concatenate rounds as text only.

local head, journal, snap, waiting, expiry, forget, applied, remembered, kept, states = unpack(KEYS)
local call = redis.call

-- updated at (0: never), due at (nothing expires or is forgotten before), journal bytes, number waiting, their bytes,
-- bytes of expired predictions, number remembered, their bytes, never_came
local COUNTERS, NEVER = '<ddddddddd', 2 ^ 53

local function now_us()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The time until which a session is sealed, 0 if it is not. A seal for a while that lasts longer than LONGEST_SEAL was made
-- before this server's clock was set back: if its copier has died, it would keep clients out until the clock is there again.
local LONGEST_SEAL = 3600 * 1000000
local function seal_end(held)
  local time = tonumber(held or 0)
  return (time == NEVER or time == 0 or time <= now_us() + LONGEST_SEAL) and time or 0
end

-- The session's tip, one field of its head, and the time until which it is sealed; nothing if there is no session.
local function tip_and(field)
  local found = call('HMGET', head, 'tip', field or 'tip', 'sealed_until')
  if found[1] then return found[1], found[2], seal_end(found[3]) end
  if call('EXISTS', head) == 1 then error('the head lacks its tip') end
end

-- Whether the session's first tip has this digest; another session may have taken the name.
local function begins_at(identity)
  return (call('HGET', head, 'first') or ''):match('^%d+:(.*)$') == identity
end

-- The reply to an attempt to change a sealed session.
local function sealed()
  return {'sealed', call('HGET', head, 'seal')}
end

local function round_of(tip)
  return tip:match('^%d+')
end

local function entries_after(tip)
  return call('XRANGE', journal, '(' .. round_of(tip) .. '-0', '+')
end

-- Whether the journal holds the entry that leads to this tip.
local function has_entry(tip)
  local round, digest = tip:match('^(%d+):(.*)$')
  local entry = call('XRANGE', journal, round .. '-0', round .. '-0')[1]
  return entry ~= nil and entry[2][2] == digest
end

local function is_on_chain(tip)
  local at = call('HMGET', head, 'tip', 'base')
  return at[1] == tip or at[2] == tip or has_entry(tip)
end

-- The entries after a tip; nil if it is not on the chain, or Redis has evicted the entry that follows it.
local function entries_since(tip)
  if not is_on_chain(tip) then return end
  local entries = entries_after(tip)
  local next = entries[1]
  local follows = next and round_of(next[1]) - next[2][4] == tonumber(round_of(tip))
  return (follows or call('HGET', head, 'tip') == tip) and entries
end

-- {head, start, entries, snapshot or nil, 1 if the reading is whole, the record if it is}
local function reading(after)
  local start, snapshot, is_whole, record = after, false, 0, false
  local entries = after and entries_since(after)
  if not entries then
    local from = call('HMGET', head, 'snapshot', 'first')
    start, snapshot, is_whole = from[1] or from[2], from[1] and call('GET', snap), 1
    record, entries = call('HGET', head, 'record'), entries_after(start)
  end
  local fields = call('HMGET', head, 'summary', 'created_at', 'counters', 'first', 'tip', 'snapshot', 'snapshot_at', 'snapshot_bytes',
    'tail_bytes', 'summary_round', 'told', 'seal', 'sealed_until')
  return {fields, start, entries, snapshot, is_whole, record}
end

-- {'applied', id, answer}, {'waiting', blob, 1 if expired}, or nil; with nil also true if a prediction is stored that is due
-- to be forgotten.
local function what_is_under(id, now, remembered_for)
  local value = call('HGET', applied, id)
  if value and struct.unpack('<d', value) + remembered_for > now then return {'applied', id, value:sub(9)} end
  local held = call('HGET', waiting, id)
  if not held then return end
  local expires_at, forgotten_at = struct.unpack('<dd', held)
  if now >= forgotten_at then return nil, true end
  return {'waiting', held:sub(17), expires_at <= now and 1 or 0}
end
