-- Asks for the lock once. The steady case costs PTTL, HINCRBY, HSET and PEXPIRE.
--   KEYS[1] lock   KEYS[2] token counters   KEYS[3] marker
--   ARGV[1] bucket   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] marker id, perhaps with a / and more; '' = not checked
-- Returns the token (> 0) if the owner has the vote now or had it before, else minus the PTTL of the
-- lock (at most -1). Errors: FOREIGN no ttl, FORGOT marker; nothing is written then.
local name, tokens, marker = KEYS[1], KEYS[2], KEYS[3]
local bucket, owner, ttl, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
