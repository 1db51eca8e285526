-- A reader's rejoin. A phase that begins with it draws a token of its own: the lease's may be below
-- what others were granted here. Into a phase that is there it comes also past writers that wait,
-- since it holds the lock. For a writer's vote it wishes as a writer does, and gets one: its downgrade makes that a reader's.
--   KEYS, ARGV as rejoin
-- Returns 1 if the vote is the owner's now, else 0. Error FORGOT marker.
--include rw.lua
local owner, ttl, token = ARGV[2], ARGV[3], tonumber(ARGV[4])
local n = tonumber(redis.call('HGET', KEYS[2], bucket) or 0)
if n == 0 then
  if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then return redis.error_reply('FORGOT marker') end
  redis.call('HSET', KEYS[2], bucket, string.format('%.0f', math.max(now, token)))
elseif n < token then
  redis.call('HSET', KEYS[2], bucket, ARGV[4])
end
--include buried.lua
local there, why = redis.call('EXISTS', KEYS[1]) == 1, nil
local v = redis.call('HMGET', KEYS[1], 'r', owner)
if there and not v[1] then -- a writer's; its own, if a downgrade has not come here
  if not v[2] then
    --include wish.lua
    if not buried(owner) then wish(owner, ttl, '0.25') end
    return 0
  end
  --include mine.lua
  if not mine(KEYS[1], owner) then return 0 end
  keep(KEYS[1], ttl)
  drop(owner)
  return 1
end
if there and not told(v[1]) then return 0 end
if not v[2] and buried(owner) then return 0 end
if there then
  local till = over(ttl)
  if v[2] and v[2] + 0 > till + 0 then till = v[2] end
  local left = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', KEYS[1], left < ttl + 0 and ttl or text(left)) -- see keep in mine.lua
  redis.call('HSET', KEYS[1], owner, till)
else
  n, why = count()
  if not n then return why end
  begin(text(n), ttl, owner, over(ttl))
end
if not drop(owner) then ask('HDEL', KEYS[5], owner) end
return 1
