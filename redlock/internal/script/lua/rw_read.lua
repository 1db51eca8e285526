-- Asks for a reader's vote once.
--   KEYS[1] lock   KEYS[2] token counters   KEYS[3] marker   KEYS[4] queue   KEYS[5] waiters
--   ARGV[1] bucket   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[#ARGV] marker id
-- Returns the token that the phase is told, else minus the PTTL of the lock (at most -1). -1 at a
-- free member: somebody waits there, and goes first; the wait that follows sees to it. Errors as
-- acquire.
--include base.lua
local owner, ttl = ARGV[2], ARGV[3]
local left, over = redis.call('PTTL', KEYS[1]), string.format('%.0f', (now - now % 1000) / 1000 + 1 + ttl)
if left == -2 then
  if redis.call('EXISTS', KEYS[4]) == 1 then return -1 end
  for _, entry in ipairs(redis.call('HGETALL', KEYS[5])) do -- what is no waiter's is left here for a while: see bury.lua and fair.lua
    if string.match(entry, ' r$') then return -1 end
  end
  --include grant.lua
  local n, why = count()
  if not n then return why end
  local t = string.format('%.0f', n)
  redis.call('HSET', KEYS[1], 'r', t .. ' ' .. t .. ' ' .. tag, owner, over)
  if type(redis.pcall('PEXPIRE', KEYS[1], ttl)) == 'table' then -- see own.lua
    redis.call('DEL', KEYS[1])
    redis.call('PEXPIRE', KEYS[1], ttl)
    return redis.error_reply('ERR a vote could not be given an end')
  end
  return n
end
local mine = redis.call('HMGET', KEYS[1], 'r', owner)
if left == -1 and not mine[2] then return redis.error_reply('FOREIGN no ttl') end
local told, marking = string.match(mine[1] or '', '^%d+ (%d+) (.*)$')
if not mine[2] and not told then -- it is a writer's, or other data
  --include foreign.lua
  if mine[1] or foreign(KEYS[1]) then return redis.error_reply('FOREIGN no lock') end
end
if marking ~= tag or not mine[2] and redis.call('EXISTS', KEYS[4]) == 1 then return -math.max(left, 1) end
if mine[2] and mine[2] + 0 > over + 0 then over = mine[2] end
if mine[2] or left < ttl + 0 then redis.call('PEXPIRE', KEYS[1], left < ttl + 0 and ttl or string.format('%.0f', left)) end -- see keep in mine.lua
redis.call('HSET', KEYS[1], owner, over)
return told + 0
