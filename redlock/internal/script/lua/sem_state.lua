-- What a member knows of the permits of a semaphore, a hash:
--   <slot> -> its owner   <owner> -> "deadline_ms slot:token slot:token…"   +<slot> -> '', of each slot but the first of a record
--   . -> no deadline is before that   - -> the key does not end before that (server time, ms)
-- Each slot takes two fields, so the length of the hash says how many are taken. What belongs together is written by one
-- command and removed by one, so a script that is interrupted leaves slots and records that agree.
local ms = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local earliest, over, used = nil, 0, 0

local function text(n) return string.format('%.0f', n) end

-- Removes the records that have ended, and their slots. Slots that no record names are what an interruption left.
local function sweep()
  local all, low, gone, named = redis.call('HGETALL', KEYS[1]), nil, {''}, {} -- '' is no field: a write that needs no memory
  local function remove(least)
    if #gone <= least then return end
    redis.call('HDEL', KEYS[1], unpack(gone)) -- a record together with its slots
    gone = {}
  end
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) then
      local deadline, first = string.match(all[i + 1], '^%d+') + 0, true
      local ended = deadline < ms
      if ended then gone[#gone + 1] = all[i] elseif not low or deadline < low then low = deadline end
      for slot in string.gmatch(all[i + 1], ' (%d+):') do
        named[slot] = true
        if not first then named['+' .. slot] = true end
        if ended then
          gone[#gone + 1] = slot
          if not first then gone[#gone + 1] = '+' .. slot end
        end
        first = false
      end
      remove(1000) -- unpack has a bound
    end
  end
  for i = 1, #all, 2 do
    if not named[all[i]] and string.find(all[i], '^%+?%d+$') then gone[#gone + 1] = all[i] end
    remove(1000)
  end
  earliest = low
  if not low then
    redis.call('DEL', KEYS[1])
    return
  end
  remove(0)
  redis.call('HSET', KEYS[1], '.', text(low))
end

-- Reads the bounds, how many slots are taken, the record of the owner and who has one slot. What has ended is gone then.
local function read(owner, slot)
  local r = redis.call('HMGET', KEYS[1], owner, slot, '.', '-')
  if not r[3] then return end
  earliest, over = r[3] + 0, r[4] + 0
  if earliest < ms then
    sweep()
    if not earliest then return end
    r = redis.call('HMGET', KEYS[1], owner, slot)
  end
  used = math.ceil(redis.call('HLEN', KEYS[1]) / 2) - 1
  return r[1], r[2]
end

-- What a record says of its slots.
local function permits(record) return string.match(record, ' (.*)$') end

-- How long another owner has to wait at least, in negative ms; none: where nothing ends.
local function refusal(none) return -math.max(earliest and earliest - ms or (none or 1) / 3, 1) end

-- Lengthens the key, so that it does not end before a deadline. It writes in any case: see keep in mine.lua.
local function outlive(deadline)
  local most = deadline - ms
  local left = redis.call('PTTL', KEYS[1])
  left = left <= most and 2 * most + 1 or left + 1 -- PTTL is cut to a whole ms, and - promises
  redis.call('PEXPIRE', KEYS[1], text(left))
  over = ms + left - 1
end

-- Lengthens what is the owner's, and writes in any case: see keep in mine.lua.
local function keep(owner, record, ttl)
  local deadline, slots = string.match(record, '^(%d+)(.*)$')
  deadline = math.max(deadline + 0, ms + ttl)
  outlive(deadline)
  redis.call('HSET', KEYS[1], owner, text(deadline) .. slots)
end
