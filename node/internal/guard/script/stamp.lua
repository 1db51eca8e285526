-- Stamps a slot with the marker of the master that serves it.
--   KEYS[1] the slot's counters   ARGV[1] marker id   ARGV[2] how old another master's stamp must be, ms
--   ARGV[3] '1' if members that know have told how long leases may be
--   ARGV[4] the word that the stamp was announced with, before the master was seen to have the marker
-- Returns 1, or 0 where the slot came from a master that was marked too short a time ago: it may have
-- forgotten, and not sat out its quarantine. -1: nothing is done before others were asked, since whoever marked
-- that master, or calls this, may not know of the longest leases. -2: the announcement is gone. The master was emptied
-- since, or another client has stamped the slot.
-- A base of the slot goes: see seal.lua.
local h = redis.call('HMGET', KEYS[1], 'id', 'forgot', 'pending')
local id = h[1]
if id == ARGV[1] then return 1 end
if h[3] ~= ARGV[4] then return -2 end
if id and h[2] then
  local t = redis.call('TIME')
  local made = tonumber(string.match(id, ' (%d+)$') or 0)
  if t[1] * 1000000 + t[2] - made < ARGV[2] * 1000 then return 0 end
  if ARGV[3] ~= '1' then return -1 end
end
redis.call('HSET', KEYS[1], 'id', ARGV[1])
redis.call('HDEL', KEYS[1], 'forgot', 'pending', 'base')
return 1
