-- Announces that a slot is about to be stamped, or that a marker is about to be carried to it: see seat.announce.
--   KEYS[1] the slot's counters   ARGV[1] a word that nobody has used
-- Returns the word to do it with: another client may have announced before.
local word = redis.call('HGET', KEYS[1], 'pending')
if not word then
  word = ARGV[1]
  redis.call('HSET', KEYS[1], 'pending', word)
end
return word
