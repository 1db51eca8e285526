-- What the scripts of a semaphore share that look at its line.
--include base.lua
--include push.lua
--include line.lua
--include register.lua
--include sem_asked.lua
--include sem_give.lua

-- Who succeeds an owner that is granted now: the one that so many others stand before as there are slots. Those before it are
-- the successors of the others that hold.
local function successor(limit) return limit > 0 and head(text(limit - 1)) or '-' end

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
  push(owner, 's ' .. owner .. ' ' .. stamp .. ' ' .. successor(limit) .. ' ' .. text(ttl) .. ' ' .. has)
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

-- Gives a slot that is given up, and free: to who wishes for it; to the hint, unless the first in line has waited so much
-- longer; else to the one of the first eight whose hash with the slot is the lowest, so that all members choose the same. A
-- waiter that has missed a heartbeat comes last: see hand.lua. Where the first in line needs several, nobody passes it. Returns
-- whether somebody has the slot; nil or false and an error, where it may not be counted.
local function serve(slot, hint)
  local done, why = grant(slot)
  if done ~= false or why then return done, why end
  local first = ask('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')
  if not first or not first[1] then return false end
  if hint ~= '' then
    local at = hint == first[1] and first[2] or redis.call('ZSCORE', KEYS[4], hint)
    if at then
      if now - first[2] > 3 * (now - at) + 100000 then hint = first[1] end
      local both = redis.call('HMGET', KEYS[5], hint, first[1])
      local ttl, n, _, limit, missed = asked(hint, both[1])
      local _, needs = asked(first[1], both[2])
      if n == 1 and not missed and slot < limit and used < limit and (needs or 1) == 1 then
        return hand(hint, {slot}, ttl, limit)
      end
    end
  end
  local line = redis.call('ZRANGE', KEYS[4], '0', '7')
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
