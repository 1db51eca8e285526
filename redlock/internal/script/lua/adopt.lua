-- Takes over a lease that was handed off: the vote of its former owner becomes that of an owner whose name nobody else has. So
-- of two that adopt one lease, the second finds nothing. Repeated, it finds what it has done.
--   KEYS, ARGV[1], ARGV[#ARGV] as in lib.lua   KEYS[6] record of an election
--   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] the former owner
-- Returns {3}; {0}: neither has the vote; {-1}: this is no lock.
--include base.lua
--include line.lua
--include mine.lua
local owner, ttl, former = ARGV[2], ARGV[3], ARGV[4]
local v = redis.pcall('HMGET', KEYS[1], owner, former, 'r')
if v.err then
  if not string.find(v.err, 'WRONGTYPE', 1, true) then redis.call('HMGET', KEYS[1], owner, former) end
  return {-1}
end
if not drop(former) then ask('HDEL', KEYS[5], former) end -- what it may wait for here is nobody's
local had = v[2] ~= '0' and v[2] -- 0: an adoption that was interrupted has moved it
if v[3] or not (v[1] and mine(KEYS[1], owner) or had and mine(KEYS[1], former)) then return {0} end -- r: readers have it
keep(KEYS[1], ttl)
-- In one command: else a second adopter would move it again, before this one is repeated.
if not v[1] then redis.call('HSET', KEYS[1], owner, had, former, '0') end
redis.call('HDEL', KEYS[1], former)
if ask('HGET', KEYS[6], 'o') == redis.sha1hex(former) then ask('HSET', KEYS[6], 'o', redis.sha1hex(owner)) end
return {3}
