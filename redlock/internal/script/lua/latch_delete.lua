-- Deletes a latch, and tells nobody.
--   KEYS as in latch.lua   ARGV[1] bucket   ARGV[2] marker id (unused)
-- Returns 1, or 0 if there was none.
local n = redis.call('DEL', KEYS[1])
redis.call('DEL', KEYS[4])
return n
