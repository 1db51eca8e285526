-- Carries several acquires and releases of one client in one call, in their order, each as if it were alone: a call
-- costs a server more than most of what it does. What fails for one of them does not touch the others.
--   KEYS[1] token counters   KEYS[2] marker   then for an acquire: lock; for a release: lock, queue, waiters
--   ARGV[1] a letter for each: a = acquire, r = release   then for each: bucket, owner, and TTL (ms) or hint
--   ARGV[#ARGV] marker id, as in acquire and release
-- At a master of a Redis Cluster, where a call can have the keys of one slot only, there are no KEYS. ARGV[2] says
-- where the buckets begin, and between are for an acquire: lock, the slot's counters; for a release: lock, the slot's
-- counters, queue, waiters. A slot that the master gives away is found at the first key that is not there.
-- Returns an array of what each would have returned, errors among them; TRYAGAIN where the master does not serve the slot, or not
-- any more in the middle: it is to be asked for again, alone.
local keys, args, letters, id = KEYS, ARGV, ARGV[1], ARGV[#ARGV]
local key, arg, more = 3, 2, 0 -- where those of the next one begin; 1 where each has counters of its own
local tokens, marker = keys[1], keys[2]
if not tokens then
  keys, arg, more = args, tonumber(args[2]), 1
end

local function acquire(name, bucket, owner, ttl)
--include vote.lua
end

local function pass(owner, hint, KEYS, ARGV)
--include lib.lua
--include pass.lua
end

local function acquires() return acquire(keys[key], args[arg], args[arg + 1], args[arg + 2]) end

local function releases()
  local name, queue, owner = keys[key], keys[key + 1 + more], args[arg + 1]
  if redis.call('EXISTS', queue) == 0 then return redis.call('HDEL', name, owner) end
  return pass(owner, args[arg + 2], {name, tokens, marker, queue, keys[key + 2 + more]}, {args[arg], id})
end

-- What a script that ends by the error would have replied: Redis 7 gives its text, those before it and with it the
-- position. Whatever is asked for again finds what it has done: a release gives its own vote up last.
local function raised(said)
  said = tostring(said)
  if string.find(said, 'hash to the same slot', 1, true) then return {err = 'TRYAGAIN alone'} end
  if string.find(said, 'cript attempted to', 1, true) then return {err = 'TRYAGAIN the slot is not served here'} end
  if not string.match(said, '^%u+ ') then said = 'ERR Error running script (call to batch): ' .. said end
  return {err = said}
end

local out = {}
for i = 1, #letters do
  if more == 1 then
    tokens = keys[key + 1]
    marker = tokens
  end
  local ok, said
  if string.byte(letters, i) == 97 then
    ok, said = pcall(acquires)
    key = key + 1 + more
  else
    ok, said = pcall(releases)
    key = key + 3 + more
  end
  arg = arg + 3
  if ok then out[i] = said or false else out[i] = raised(said) end -- a nil would be the end of the array
end
return out
