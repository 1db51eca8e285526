-- Gives up a vote or a place, a writer's or a reader's, and serves who comes next in the same step.
--   ARGV[2] owner   ARGV[3] the writer to prefer, or ''; a '+' before it: the owner held the lock and wrote, so that the
--           readers that wait come first, all of them
-- Returns 1 if the vote was the owner's, else 0. Error FORGOT marker: the vote is freed, but nobody
-- could be served.
local owner, hint = ARGV[2], ARGV[3]
if redis.call('EXISTS', KEYS[4], KEYS[5]) == 0 then
  local fields = redis.call('HLEN', KEYS[1])
  local till = fields > 2 and redis.call('HGET', KEYS[1], owner)
  local had = redis.call('HDEL', KEYS[1], owner)
  if fields == 1 + had and (had == 1 or string.find(redis.call('HGET', KEYS[1], 'r') or '', '^%d+ %d+ ')) then
    redis.call('HDEL', KEYS[1], 'r') -- it was the last reader of a phase
  end
  if till and redis.call('HEXISTS', KEYS[1], 'r') == 1 then
    --include base.lua
    local nowms = (now - now % 1000) / 1000
    if till + 5 >= nowms + redis.call('PTTL', KEYS[1]) then -- the key lived for this one: others may be long dead
      --include sweep.lua
      local readers, last = sweep()
      if readers == 0 then redis.call('HDEL', KEYS[1], 'r') else shorten(last) end
    end
  end
  return had
end
--include rw.lua
local wrote = string.sub(hint, 1, 1) == '+'
if wrote then hint = string.sub(hint, 2) end
local first = hint ~= '' and ask('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')
if first and first[2] and first[2] % 1 > 0 then hint = '' end -- tickets say who is next: see fair.lua
local there = redis.call('HMGET', KEYS[1], 'r', owner)
local had = there[2] and 1 or 0
local phase = there[1] and (had == 1 or string.find(there[1], '^%d+ %d+ ')) -- else it is a writer's, or no lock
local waited = drop(owner)
if not waited then ask('HDEL', KEYS[5], owner) end -- a reader's entry has no place
if phase then
  if had == 1 then redis.call('HDEL', KEYS[1], owner) end
  local readers, last = sweep()
  if readers > 0 then
    if had == 1 then
      shorten(last)
    elseif waited and tag ~= '!' and writer() == '-' then
      admit(false) -- they stood behind it alone
    end
    return had
  end
  redis.call('HDEL', KEYS[1], 'r') -- before the vote is another's: see rw.lua
elseif had == 0 then
  --include withdraw.lua
  --include spent.lua
  return 0
end
local served = 0
if tag ~= '!' and (phase or redis.call('HLEN', KEYS[1]) == 1) then
  if wrote then served = admit(true) end
  if served == 0 then
    served = hand(hint)
    if served == false then served = admit(true) end
  end
end
if not phase then redis.call('HDEL', KEYS[1], owner) end
if served == 0 or not served then
  --include spent.lua
end
if served == nil then return redis.error_reply('FORGOT marker') end
return had
