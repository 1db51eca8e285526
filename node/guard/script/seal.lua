-- Stamps a slot with the marking of its master, which was just made.
--   KEYS[1] the slot's counters   ARGV[1] marker id   ARGV[2] the word that it was announced with
--   ARGV[3] '1' if the master forgot: the counters that the slot had before are not to be trusted
--   ARGV[4] '1' if the master does not vote yet   ARGV[5] the base of its slots if this is its first deployment, 0: none
-- Does nothing where the announcement is gone, which whatever empties the master takes with it.
-- A base stays only under the stamp that it was written with, and a slot that had another stamp before gets none. Who wrote that
-- one may have lost counters of the slot since, and what is lost begins at the server's time.
local h = redis.call('HMGET', KEYS[1], 'pending', 'id')
if h[1] ~= ARGV[2] then return end
if h[2] ~= ARGV[1] then
  if ARGV[3] == '1' then redis.call('DEL', KEYS[1]) end
  redis.call('HDEL', KEYS[1], 'base')
  redis.call('HSET', KEYS[1], 'id', ARGV[1])
  if not h[2] and ARGV[5] ~= '0' then redis.call('HSET', KEYS[1], 'base', ARGV[5]) end
  if ARGV[4] == '1' then redis.call('HSET', KEYS[1], 'forgot', '1') end
end
redis.call('HDEL', KEYS[1], 'pending')
