-- Says who has the vote and what is proclaimed, and registers an observer.
--   KEYS, ARGV[1], ARGV[#ARGV] as in proclaim.lua
--   ARGV[2] watch, or '': nobody is registered   ARGV[3] lifetime of the registration, ms; 0: it is withdrawn, and
--           nothing is asked: returns whether there was one
-- Returns {server time in µs, PTTL of the lock, SHA-1 of the vote's owner or '', token, sequence, SHA-1 of
-- who proclaimed or '', and the value if there is one}. Readers have no vote that could lead: ''.
-- Errors: FOREIGN no ttl or no lock, and WRONGTYPE.
--include base.lua
local watch, entry = ARGV[2], ARGV[3] + 0
if watch ~= '' and entry == 0 then return redis.call('HDEL', KEYS[5], watch) end
local left = redis.call('PTTL', KEYS[1])
local owner, most = '', -1
--include foreign.lua
if left > 0 and foreign(KEYS[1]) then return redis.error_reply('FOREIGN no lock') end
if redis.call('HEXISTS', KEYS[1], 'r') == 0 then
  local all = redis.call('HGETALL', KEYS[1]) -- two owners after an interrupted hand-over: see mine.lua
  for i = 1, #all, 2 do
    local token = tonumber(all[i + 1]) or 0
    if token > most then owner, most = redis.sha1hex(all[i]), token end
  end
end
if left == -1 then return redis.error_reply('FOREIGN no ttl') end
if watch ~= '' then
  local new = redis.call('HSET', KEYS[5], watch, (now - now % 1000) / 1000 + entry) == 1 -- printed in full below 10^14
  if redis.call('PTTL', KEYS[5]) < 1.5 * entry then redis.call('PEXPIRE', KEYS[5], 2 * entry + 1) end
  if new and redis.call('HLEN', KEYS[5]) % 8 == 0 then -- those that have left are not kept by those that stay
    --include observers.lua
    tell()
  end
end
local record = redis.call('HMGET', KEYS[4], 't', 's', 'o', 'v')
return {now, left, owner, record[1] or '0', record[2] or '0', record[3] or '', record[4] or nil}
