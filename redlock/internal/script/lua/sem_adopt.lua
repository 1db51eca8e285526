-- Takes over a lease of permits that was handed off: see adopt.lua.
--   KEYS, ARGV[1], ARGV[#ARGV] as in sem_acquire.lua   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] the former owner
--   ARGV[5] the slots of the lease, "3 5"
-- Returns {1}; {0}: neither has all of those slots; {-1}: this is no semaphore.
--include time.lua
--include sem_state.lua
--include base.lua
--include line.lua
local owner, ttl, former, cap = ARGV[2], ARGV[3] + 0, ARGV[4], nil
--include sem_asked.lua
local kind = redis.pcall('HLEN', KEYS[1])
if type(kind) == 'table' then
  if not string.find(kind.err, 'WRONGTYPE', 1, true) then redis.call('HLEN', KEYS[1]) end
  return {-1}
end
leave(former)
local old, has = read(former, '.'), earliest and redis.call('HGET', KEYS[1], owner)
local record = has or old
if not record then return {0} end
for slot in string.gmatch(ARGV[5], '%d+') do
  if not string.find(record, ' ' .. slot .. ':', 1, true) then return {0} end
end
if not has then
  -- In one command: two records never name one slot, or a sweep of the one would free it under the other. What is left of
  -- the former has ended, and . says so until it is gone: who reads the permits sweeps it where this script ends early.
  local set = {}
  for slot in string.gmatch(record, ' (%d+):') do
    set[#set + 1] = slot
    set[#set + 1] = owner
  end
  redis.call('HSET', KEYS[1], owner, record, former, '0', '.', '0', unpack(set))
end
redis.call('HDEL', KEYS[1], former)
keep(owner, record, ttl)
if not has then redis.call('HSET', KEYS[1], '.', text(earliest)) end
return {1}
