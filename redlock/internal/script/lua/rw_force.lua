-- Takes the vote from whoever has it, all readers among them, or from one owner alone. Then readers
-- that wait come first.
--   ARGV as force   Returns and errors as force.
--include rw.lua
redis.call('HLEN', KEYS[1])
if redis.call('PTTL', KEYS[1]) == -1 then return redis.error_reply('FOREIGN no ttl') end
--include foreign.lua
if foreign(KEYS[1]) then return redis.error_reply('FOREIGN no lock') end
--include bury.lua
for _, waiter in ipairs(ARGV[2] ~= '' and redis.call('HKEYS', KEYS[5]) or {}) do -- a reader's entry has no place
  if redis.sha1hex(waiter) == ARGV[2] then redis.call('HDEL', KEYS[5], waiter) end
end
if redis.call('HEXISTS', KEYS[1], 'r') == 1 then
  local taken = 0
  for _, owner in ipairs(redis.call('HKEYS', KEYS[1])) do
    if owner ~= 'r' and (ARGV[2] == '' or redis.sha1hex(owner) == ARGV[2]) then
      taken = taken + redis.call('HDEL', KEYS[1], owner)
    end
  end
  if taken == 0 then return 0 end
  local readers, last = sweep()
  if readers > 0 then
    shorten(last)
    return 1
  end
  redis.call('HDEL', KEYS[1], 'r')
else
  --include rob.lua
end
if tag == '!' then return 1 end
local served = admit(true)
if served == 0 then served = hand('') end
if served == nil then return redis.error_reply('FORGOT marker') end
return 1
