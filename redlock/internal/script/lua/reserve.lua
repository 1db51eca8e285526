-- Lifts the counter to a token up to which the owner of a vote may give tokens itself, and says whether anybody waits.
-- A vote above the hold's token is a later one, as for a raise. A counter does not outrun the clock, from which it goes on
-- where all members have forgotten it.
--   KEYS[1] lock   KEYS[2] token counters   KEYS[3] waiters
--   ARGV[1] bucket   ARGV[2] owner   ARGV[3] the token of its hold   ARGV[4] the token to lift to   ARGV[5] marker id (unused)
-- Returns 0 if the vote is not the owner's, and 3 if it is, but nothing is reserved. Otherwise 1 if nobody waits, 2 if somebody may.
local vote, n = redis.call('HGET', KEYS[1], ARGV[2]), redis.call('HGET', KEYS[2], ARGV[1])
if not vote then return 0 end
local to, time = tonumber(ARGV[4]), redis.call('TIME')
if not n or tonumber(vote) > tonumber(ARGV[3]) or to >= 9007199254740992 then return 3 end
if tonumber(n) < to then
  if time[1] * 1000000 + time[2] < to then return 3 end
  n = ARGV[4]
end
redis.call('HSET', KEYS[2], ARGV[1], n) -- it writes in any case: see keep in mine.lua
return redis.call('EXISTS', KEYS[3]) + 1
