-- What the scripts of a lock with readers share. While readers have it (a read phase), the lock's
-- hash has the field r = "drawn told marking": the token that the phase drew here, the one that
-- newcomers are told, the marker id under which it began. And for each reader: its owner -> until
-- when it has the vote, server time in ms. A token beside r is that of a writer that has given its
-- vote up: who hands over to a writer removes r first. A reader that waits has an entry "deadline_ms ttl_ms r"
-- in waiters, and no place in the queue: to all other scripts it is nobody.
--include base.lua
--include push.lua
--include grant.lua
--include line.lua
--include hand.lua
--include register.lua
local nowms = (now - now % 1000) / 1000

local function text(n) return string.format('%.0f', n) end

-- Until when a reader has its vote. Never before the key ends that is given the same TTL.
local function over(ttl) return text(nowms + 1 + ttl) end

-- What newcomers of a phase are told, as text. Nil: there is none, or it is of another marking.
-- That one came back with a snapshot: the counters were restored since, and its token is an old
-- one.
local function told(phase)
  local t, marking = string.match(phase or '', '^%d+ (%d+) (.*)$')
  return marking == tag and t or nil
end

-- The first live writer of the queue, or '-'. Those whose entry has run out are removed.
local function writer()
  local first = head()
  while first ~= '-' and not live(first) do
    drop(first)
    first = head()
  end
  return first
end

-- Begins a phase, and gives it an end, though who had the lock before had a later one: see
-- own.lua. Then the readers are written, each with its end.
local function begin(t, ttl, ...)
  redis.call('HSET', KEYS[1], 'r', t .. ' ' .. t .. ' ' .. tag, ...)
  if type(redis.pcall('PEXPIRE', KEYS[1], ttl)) == 'table' then
    if redis.call('PTTL', KEYS[1]) < 0 then redis.call('DEL', KEYS[1]) end
    redis.call('PEXPIRE', KEYS[1], ttl)
    error('ERR a vote could not be given an end', 0)
  end
end

-- Lets in every reader that waits, in one step. fresh: as a new phase, else into the one that is
-- there. Returns how many; or nil or false, as count does.
local function admit(fresh)
  local entries = ask('HLEN', KEYS[5]) or 0
  if entries > 0 then entries = entries - (ask('HEXISTS', KEYS[5], '#') or 0) end -- a ticket: see fair.lua
  if entries == 0 or head(entries - 1) ~= '-' then return 0 end -- all that are there have a place: writers
  local all, owners, ttls, gone, most, t = ask('HGETALL', KEYS[5]), {}, {}, {}, 0, nil
  for i = 1, #all, 2 do
    local deadline, ttl = string.match(all[i + 1], '^(%d+) (%d+) r$')
    if deadline then
      gone[#gone + 1] = all[i]
      local left = deadline - nowms
      if left >= 1 then -- as a writer: no longer than its entry, so that all that is given to a dead one ends with it
        if left < ttl + 0 then ttl = text(left) end
        owners[#owners + 1], ttls[#ttls + 1] = all[i], ttl
        most = math.max(most, ttl + 0)
      end
    end
  end
  if #owners > 0 then
    if fresh then
      t = count()
      if not t then return t end
      t = text(t)
      begin(t, text(most))
    else
      t = told(redis.call('HGET', KEYS[1], 'r'))
      if not t then return 0 end
      lengthen(KEYS[1], text(most))
    end
    for i = 1, #owners, 500 do
      local set = {}
      for j = i, math.min(i + 499, #owners) do
        set[#set + 1] = owners[j]
        set[#set + 1] = over(ttls[j])
      end
      redis.call('HSET', KEYS[1], unpack(set))
    end
  end
  for i = 1, #gone, 1000 do ask('HDEL', KEYS[5], unpack(gone, i, math.min(i + 999, #gone))) end
  local next = #owners > 0 and writer()
  for i, owner in ipairs(owners) do
    push(owner, 'g ' .. owner .. ' ' .. t .. ' ' .. stamp .. ' ' .. next .. ' ' .. ttls[i])
  end
  return #owners
end

--include sweep.lua
