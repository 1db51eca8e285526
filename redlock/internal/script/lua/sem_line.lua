-- What the scripts of a semaphore share that look at its line.
--include base.lua
--include push.lua
--include line.lua
--include register.lua
--include sem_asked.lua
--include sem_give.lua

-- The first in line that waits for one permit, and for this slot before others. That is its lane: all members find the same
-- waiter, in whatever order slots are given up, and two slots never have the same. Of long lines, it looks at the beginning.
local function lane(slot)
  local mark, from = ' 1 ' .. slot .. ' ', 0
  for size = 8, 24, 16 do
    local line = ask('ZRANGE', KEYS[4], text(from), text(from + size - 1))
    if not line or not line[1] then return nil end
    local entries = redis.call('HMGET', KEYS[5], unpack(line))
    for i, owner in ipairs(line) do
      if entries[i] and string.find(entries[i], mark, 1, true) then
        local ttl, n, _, _, missed = asked(owner, entries[i])
        if ttl and n == 1 and not missed then return owner end
      end
    end
    from = size
  end
end

-- Who succeeds an owner that is granted permits now: of one slot, the first in its lane. Else the one that so many others stand
-- before as there are slots, because those before it are the successors of the others that hold.
local function successor(limit, has)
  if limit < 1 then return '-' end
  local slot = string.match(has, '^(%d+):%d+$')
  return slot and lane(slot + 0) or head(text(limit - 1))
end

-- Stands an owner in line.
local function stand(owner, ttl, entry, want, limit, n)
  register(owner, ttl .. ' ' .. n .. ' ' .. want .. ' ' .. limit, entry)
end

-- Notes that an owner wishes for slots, each where there is no live wish. See sem_asked.lua.
local function wish(owner, slots, ttl, entry, limit)
  unwish(owner)
  local names, set = '', {}
  for _, slot in ipairs(slots) do
    local other = redis.call('HGET', KEYS[5], '>' .. slot)
    if other then
      local deadline = string.match(redis.call('HGET', KEYS[5], '<' .. other) or '', '^%d+')
      if not deadline or deadline + 0 < ms then
        unwish(other)
        other = nil
      end
    end
    if not other then
      names = names .. ' ' .. slot
      set[#set + 1] = '>' .. slot
      set[#set + 1] = owner
    end
  end
  if #set == 0 then return end
  redis.call('HSET', KEYS[5], '<' .. owner, text(ms + entry) .. ' ' .. ttl .. ' ' .. limit .. names, unpack(set))
  if redis.call('PTTL', KEYS[5]) < entry then
    local lives = text(2 * entry + 1)
    redis.call('PEXPIRE', KEYS[5], lives)
    if ask('EXISTS', KEYS[4]) == 1 then lengthen(KEYS[4], lives) end -- see register.lua
  end
end

-- Gives slots to a waiter, and tells it all that it has. wished: beside what it has already. Without that, whoever has something
-- was given it by a script that was interrupted, and only leaves the line: false.
local function hand(owner, slots, ttl, limit, wished)
  local record = earliest and redis.call('HGET', KEYS[1], owner)
  if record and not wished then
    leave(owner)
    return false
  end
  local has, why = give(owner, slots, ttl, record)
  if not has then return has, why end
  drop(owner)
  push(owner, 's ' .. owner .. ' ' .. stamp .. ' ' .. successor(limit, has) .. ' ' .. text(ttl) .. ' ' .. has)
  return true
end

-- Gives a slot to who wishes for it. False: nobody does, or may have it.
local function grant(slot)
  local wisher = ask('HGET', KEYS[5], '>' .. slot)
  if not wisher then return false end
  local deadline, ttl, limit, names = string.match(ask('HGET', KEYS[5], '<' .. wisher) or '', '^(%d+) (%d+) (%d+)(.*)$')
  if not deadline then return false end
  local left = deadline - ms
  if left < 1 then
    unwish(wisher)
    return false
  end
  limit = limit + 0
  if limit > 0 then -- not of a lease, which has the slot
    limit = cap or limit
    if slot >= limit or used >= limit then return false end
  end
  local done, why = hand(wisher, {slot}, math.min(ttl + 0, left), limit, true)
  if not done then return done, why end
  local rest = {}
  for other in string.gmatch(names, '%d+') do
    if other + 0 ~= slot then rest[#rest + 1] = other end
  end
  if #rest > 0 then wish(wisher, rest, ttl, left, limit) else leave(wisher) end
  return true
end

-- Gives a slot to a waiter that is preferred. If the first in line has waited so much longer, it takes the place of that one,
-- unless it has missed a heartbeat. False: the waiter is not in line, or may not have the slot, or the first in line needs
-- several: nobody passes that one.
local function prefer(pick, first, slot)
  local at = pick == first[1] and first[2] or redis.call('ZSCORE', KEYS[4], pick)
  if not at then return false end
  local both = redis.call('HMGET', KEYS[5], pick, first[1])
  local ttl, n, _, limit, missed = asked(pick, both[1])
  local firstTTL, needs, _, firstLimit, late = asked(first[1], both[2])
  if now - first[2] > 3 * (now - at) + 20000 and not late then
    pick, ttl, n, limit, missed = first[1], firstTTL, needs, firstLimit, false
  end
  if n == 1 and not missed and slot < limit and used < limit and (needs or 1) == 1 then
    return hand(pick, {slot}, ttl, limit)
  end
  return false
end

-- Gives a slot that is given up, and free: to who wishes for it; to the hint; to the first in the slot's lane; else to the one of
-- the first eight whose hash with the slot is the lowest, so that all members choose the same. A waiter that has missed a
-- heartbeat comes last: see first.lua. Where the first in line needs several, nobody passes it. Returns whether somebody has the
-- slot; nil or false and an error, where it may not be counted.
local function serve(slot, hint)
  local done, why = grant(slot)
  if done ~= false or why then return done, why end
  for try = 1, 2 do
    local first = ask('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')
    if not first or not first[1] then return false end
    local pick = hint
    if try == 2 then pick = lane(slot) or '' end
    if pick ~= '' then
      done, why = prefer(pick, first, slot)
      if done ~= false or why then return done, why end
    end
  end
  local line = ask('ZRANGE', KEYS[4], '0', '7')
  if not line or not line[1] then return false end
  local entries = redis.call('HMGET', KEYS[5], unpack(line))
  local low, pick, late, lateTTL, lateLimit, pickTTL, pickLimit
  local before = false -- a live one stands before
  for i, owner in ipairs(line) do
    local ttl, n, _, limit, missed = asked(owner, entries[i])
    if not ttl then
      leave(owner)
    elseif missed then
      if n == 1 and not late and slot < limit and used < limit then late, lateTTL, lateLimit = owner, ttl, limit end
    elseif n > 1 then
      if not before then
        local slots = find(slot, limit, n, slot >= limit)
        if not slots then return false end
        return hand(owner, slots, ttl, limit)
      end
    else
      before = true
      if slot < limit and used < limit then
        local hash = redis.sha1hex(slot .. owner)
        if not low or hash < low then low, pick, pickTTL, pickLimit = hash, owner, ttl, limit end
      end
    end
  end
  if pick then return hand(pick, {slot}, pickTTL, pickLimit) end
  if late then return hand(late, {slot}, lateTTL, lateLimit) end
  return false
end

-- Gives what is free to those in line, in their order, as long as it suffices. A waiter that has missed a heartbeat is passed,
-- unless it is the last. Returns true; or nil or false and an error, as count.
local function admit()
  local place = 0
  while true do
    local owner = head(text(place))
    if owner == '-' then return true end
    local ttl, n, want, limit, missed = asked(owner)
    if not ttl then
      leave(owner)
    elseif missed and place < 8 and head(text(place + 1)) ~= '-' then
      place = place + 1
    else
      local slots = find(want, limit, n, true)
      if not slots then return true end
      local done, why = hand(owner, slots, ttl, limit)
      if why then return done, why end
    end
  end
end

-- Serves slots that are given up. Who needs several may get them all with the first; and one that is above a limit makes room
-- for another below. So does the end of a first in line that needed several; and what an interrupted script has freed is given
-- when it is repeated. Returns true; or nil or false and an error, as count.
local function hands(slots, hint)
  local all = #slots > 0
  for _, slot in ipairs(slots) do
    if not earliest or not redis.call('HGET', KEYS[1], slot) then
      local done, why = serve(slot + 0, hint)
      if why then return done, why end
      all = all and done
    end
  end
  if all then return true end
  return admit()
end
