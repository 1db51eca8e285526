-- A lock that was taken by force is not given back to its holder by a re-join: beside that, another has it. Waiters has the
-- field '!' for any owner, or '!' and the SHA-1 of one, with the server time (ms) until which re-joins are refused: until every
-- lease that was held before is over. Left wherever this arrives, since a member that the holder has lost would be re-joined
-- first; one that names the owner is no matter to others, and one that does not only delays a re-join of theirs.
-- Who is named loses its place in the queue as well: a holder that others served while it waited here would be served again.
-- Where any owner is meant, those that wish to be re-joined (wish.lua) lose it.
do
  drop('') -- it is nobody: a write that needs no memory, see keep in mine.lua
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[4], '-inf', ARGV[2] ~= '' and '+inf' or '(1', 'BYSCORE')) do
    if ARGV[2] == '' or redis.sha1hex(waiter) == ARGV[2] then drop(waiter) end
  end
  local most = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]), tonumber(redis.call('HGET', KEYS[3], 'q') or 0))
  local field, least = '!' .. ARGV[2], (now - now % 1000) / 1000 + most + 1
  if tonumber(redis.call('HGET', KEYS[5], field) or 0) < least then
    redis.call('HSET', KEYS[5], field, string.format('%.0f', least))
  end
  for _, key in ipairs({KEYS[5], KEYS[4]}) do lengthen(key, string.format('%.0f', most + 1)) end -- see register.lua
end
