-- Gives a lease that is held and valid its slots here, and takes from its owner all others that it has here.
--   KEYS, ARGV[1], ARGV[#ARGV] as in sem_acquire.lua   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] "slot:token slot:token…"
--   ARGV[5] for how long it wishes for those that are another's, ms; 0: it does not
-- The counters first: a vote below one could let a later token fall behind.
-- Returns 1 if the owner has all of its slots now, else 0. Error FORGOT marker.
--include time.lua
--include sem_state.lua
local owner, ttl, entry, known = ARGV[2], ARGV[3] + 0, ARGV[5] + 0, '0'
--include sem_cap.lua
--include sem_line.lua
--include sem_take.lua
local wanted, slots, tokens = {}, {}, {}
for slot, token in string.gmatch(ARGV[4], '(%d+):(%d+)') do
  local bucket = ARGV[1] .. '.' .. slot % 256
  local n = tonumber(redis.call('HGET', KEYS[2], bucket) or 0)
  if n == 0 then
    if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then return redis.error_reply('FORGOT marker') end
    redis.call('HSET', KEYS[2], bucket, text(math.max(time[1] * 1000000 + time[2], token + 0)))
  elseif n < token + 0 then
    redis.call('HSET', KEYS[2], bucket, token)
  end
  wanted[slot] = true
  slots[#slots + 1], tokens[#tokens + 1] = slot, token + 0
end
local record = read(owner, '.')
leave(owner)
--include buried.lua
local lost, freed = buried(owner), {}
if record then freed, record = take(owner, record, wanted) end
local free, with, missing = {}, {}, {}
for i, slot in ipairs(slots) do
  if not (record and string.find(record, ' ' .. slot .. ':', 1, true)) then
    if lost or earliest and redis.call('HGET', KEYS[1], slot) then
      missing[#missing + 1] = slot
    else
      free[#free + 1], with[#with + 1] = slot, tokens[i]
    end
  end
end
if #free > 0 then
  write(owner, free, with, ttl, record)
elseif record then
  keep(owner, record, ttl)
end
local done, why = hands(freed, '')
clear()
if not done then return why end
if #missing > 0 and entry > 0 and not lost then wish(owner, missing, ttl, entry, 0) end
return #missing == 0 and 1 or 0
