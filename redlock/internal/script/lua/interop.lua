-- Included behind lib.lua for clients with Config.Interop, in all their scripts but extend and peek:
--   KEYS[6] the name's counter, from which the reference system's fenced lock draws as well
--   KEYS[7] turn: exists while the lock is left to the reference system's waiters
--   ARGV[#ARGV-2] the channel that they listen to   ARGV[#ARGV-1] ours beside it
-- The bucket is kept as the floor of the name's counter. It is what the restart guard takes away and
-- restores, so that a counter which this member lost, or has again from a snapshot, leads nobody back.
local channel, ours = ARGV[#ARGV - 2], ARGV[#ARGV - 1]
local patience = 50 -- ms that the lock is left to others at most

local function text(n) return string.format('%.0f', n) end

-- In place of lib's: others write to the name's counter too, so it says nothing of this member's memory,
-- and every grant compares the marker.
count = function()
  if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then return nil, redis.error_reply('FORGOT marker') end
  local floor = redis.call('HGET', KEYS[2], bucket)
  local drawn = redis.call('INCR', KEYS[6])
  local n = math.max(drawn, floor and tonumber(floor) + 1 or now)
  if n >= 9007199254740992 then -- the number drawn is nobody's
    return false, redis.error_reply('EXHAUSTED tokens: the counter is at 2^53')
  end
  if n > drawn then redis.call('SET', KEYS[6], text(n)) end
  redis.call('HSET', KEYS[2], bucket, text(n))
  return n
end

-- Lifts both counters to a token.
local function lift(token)
  redis.call('HSET', KEYS[2], bucket, text(math.max(redis.call('HGET', KEYS[2], bucket) or now, token))) -- in any case: see keep
  if tonumber(redis.call('GET', KEYS[6]) or 0) < token then redis.call('SET', KEYS[6], text(token)) end
end

-- How many of the reference system's clients wait here. Ours subscribe both channels in one command, so
-- the difference is exact.
local function others()
  local n = redis.pcall('PUBSUB', 'NUMSUB', channel, ours)
  if n.err then return 0 end
  return n[2] - n[4]
end

-- For how many ms more the lock, which is free, is left to others, or nil.
local function turn()
  local left = redis.call('PTTL', KEYS[7])
  return left > 0 and left or nil
end

-- Tells that the lock is free. Where others wait, ours stand back for a while: they are as fast as the
-- message, and would have the lock again each time.
local function leave(waiting)
  if waiting > 0 then
    redis.call('SET', KEYS[7], '1', 'PX', patience)
    redis.pcall('PUBLISH', ours, 't') -- the next message in their channel is of our making
  end
  redis.pcall('PUBLISH', channel, '0')
end

-- What becomes of a vote that its owner gives up: it is left to others where they wait, else handed over as
-- ever, else free. False: nothing could be handed over.
local function pass(owner, hint)
  local waiting = tag == '!' and 0 or others()
  local handed = tag ~= '!' and waiting == 0 and hand(hint)
  redis.call('HDEL', KEYS[1], owner)
  if not handed then leave(waiting) end
  return handed ~= nil
end
