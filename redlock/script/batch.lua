-- Carries several acquires and releases of one client in one call, in their order, each as if it were alone: a call
-- costs a server more than most of what it does. What fails for one of them does not touch the others.
--   KEYS[1] token counters   KEYS[2] marker   then for an acquire: lock; for a release: lock, queue, waiters
--   ARGV[1] a letter for each: a = acquire, r = release   then for each: bucket, owner, and TTL (ms) or hint
--   ARGV[#ARGV] marker id, as in acquire and release
-- Returns an array of what each would have returned, errors among them.
local keys, args = KEYS, ARGV
local letters, tokens, marker, id = args[1], keys[1], keys[2], args[#args]

local function acquire(name, bucket, owner, ttl)
--include vote.lua
end

local function pass(owner, hint, KEYS, ARGV)
--include lib.lua
--include pass.lua
end

-- What a script that ends by an error would have replied: Redis 7 gives its text, those before it and with it the
-- position.
local function raised(said)
  said = tostring(said)
  if not string.match(said, '^%u+ ') then said = 'ERR Error running script (call to batch): ' .. said end
  return {err = said}
end

local key, arg = 3, 2 -- where those of the next one begin

local function acquires() return acquire(keys[key], args[arg], args[arg + 1], args[arg + 2]) end

local function releases()
  local name, queue, owner = keys[key], keys[key + 1], args[arg + 1]
  if redis.call('EXISTS', queue) == 0 then return redis.call('HDEL', name, owner) end
  return pass(owner, args[arg + 2], {name, tokens, marker, queue, keys[key + 2]}, {args[arg], id})
end

local out = {}
for i = 1, #letters do
  local ok, said
  if string.byte(letters, i) == 97 then
    ok, said = pcall(acquires)
    key = key + 1
  else
    ok, said = pcall(releases)
    key = key + 3
  end
  arg = arg + 3
  if ok then out[i] = said else out[i] = raised(said) end
end
return out
