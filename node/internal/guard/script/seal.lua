-- Stamps a slot with the marking of its master, which was just made.
--   KEYS[1] the slot's counters   ARGV[1] marker id   ARGV[2] the word that it was announced with
--   ARGV[3] '1' if the master forgot: the counters that the slot had before are not to be trusted
--   ARGV[4] '1' if the master does not vote yet
-- Does nothing where the announcement is gone, which whatever empties the master takes with it.
-- A version from before may have given the slot a base, at which its clients begin buckets. What was lost under the former stamp
-- would begin too low there, so it goes with that stamp.
local h = redis.call('HMGET', KEYS[1], 'pending', 'id')
if h[1] ~= ARGV[2] then return end
if h[2] ~= ARGV[1] then
  if ARGV[3] == '1' then redis.call('DEL', KEYS[1]) end
  redis.call('HDEL', KEYS[1], 'base')
  redis.call('HSET', KEYS[1], 'id', ARGV[1])
  if ARGV[4] == '1' then redis.call('HSET', KEYS[1], 'forgot', '1') end
end
redis.call('HDEL', KEYS[1], 'pending')
