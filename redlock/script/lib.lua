-- Put in front of wait, yield, rejoin, force and pass (the second part of release), which all have
--   KEYS[1] lock   KEYS[2] token counters   KEYS[3] marker   KEYS[4] queue   KEYS[5] waiters
-- (In a Redis Cluster KEYS[2] and KEYS[3] are one key, the slot's.)
--   ARGV[1] bucket   ARGV[#ARGV] marker id: '' = not checked, '!' = no hand-over
-- The queue orders owners by the server time of their first registration; waiters maps an owner to
-- "deadline_ms ttl_ms". Server time only, read before anything is granted, so that no grant starts before it.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('000000' .. time[2], -6) -- now, as text: cheaper than to print a number
local bucket, tag = ARGV[1], ARGV[#ARGV]

-- In a Redis Cluster a client has an inbox at every master, named by the marker id, because what is published
-- there goes to all servers. Where there are sharded channels, which stay with the master, the last argument is
-- "marker id/hash tag of the slot that the inbox is in".
local inbox, place = ''
if KEYS[2] == KEYS[3] then
  local id, at = string.match(tag, '^(.*)/(.*)$')
  if id then tag, place = id, at end
  inbox = ':' .. tag
end

local function text(n) return string.format('%.0f', n) end

-- There is no roll-back: a notification that is denied must not undo what it tells.
local function push(owner, message)
  local client = string.match(owner, '^([^:]+):%d+$')
  if not client then return end
  local channel = 'redquorum:inbox:' .. client
  if place then
    local heard = redis.pcall('SPUBLISH', channel .. ':{' .. place .. '}' .. inbox, message)
    if type(heard) == 'number' and heard > 0 then return end
  end -- that slot was given away, or the client does not listen there yet: it does here
  redis.pcall('PUBLISH', channel .. inbox, message)
end

-- The next token, or nil where this member lost its counters since the session began.
local function count()
  local n = redis.call('HINCRBY', KEYS[2], bucket, '1')
  if n == 1 then
    if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then
      redis.call('HDEL', KEYS[2], bucket)
      return nil
    end
    n = now
    redis.call('HSET', KEYS[2], bucket, text(n))
  end
  return n
end

-- A vote that cannot be given an end (PEXPIRE is not permitted) must not stay: it would be there for ever, and be
-- no lock to others. Asked again, the command ends the script and is named by the error.
local function own(owner, token, ttl)
  redis.call('HSET', KEYS[1], owner, token)
  if type(redis.pcall('PEXPIRE', KEYS[1], ttl)) == 'table' then
    redis.call('HDEL', KEYS[1], owner)
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end

-- Returns the token, and as text.
local function grant(owner, ttl)
  local n = count()
  if not n then return nil end
  local token = text(n)
  own(owner, token, ttl)
  return n, token
end

-- least: where that much is left, nothing is done; ttl itself if it is not given.
local function lengthen(key, ttl, least)
  if redis.call('PTTL', key) < tonumber(least or ttl) then redis.call('PEXPIRE', key, ttl) end
end

-- A key that the script itself has emptied cannot be asked while its slot is given to another master of a
-- Redis Cluster: nothing is there then. (And a hand-over writes the new owner before it deletes the old one.)
-- Whatever else is refused ends the script, by being asked again.
local function ask(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if not string.find(answer.err, 'non local key', 1, true) then return redis.call(...) end
end

-- Who is not in the queue has nothing in waiters that anybody would look at.
local function drop(owner)
  if ask('ZREM', KEYS[4], owner) ~= 0 then ask('HDEL', KEYS[5], owner) end
end

-- The TTL that a registered owner asked for, as text, or nil if its entry has run out.
local function live(owner)
  local entry = redis.call('HGET', KEYS[5], owner)
  if not entry then return nil end
  local deadline, ttl = string.match(entry, '^(%d+) (%d+)$')
  if not deadline or tonumber(deadline) * 1000 < now then return nil end
  return ttl
end

local function head()
  local first = ask('ZRANGE', KEYS[4], 0, 0)
  return first and first[1] or '-'
end

-- Executes a waiter's request and tells it, and who comes after it.
local function hand(owner, ttl)
  local n, token = grant(owner, ttl)
  if not n then return nil end
  drop(owner)
  push(owner, 'g ' .. owner .. ' ' .. token .. ' ' .. stamp .. ' ' .. head())
  return n
end

-- Who gets a vote that is given up: the hint if it waits and is live, else the first live one in line.
-- Entries that have run out are removed when met; where one cannot be, the script has ended, and does not
-- meet it for ever.
local function successor(hint)
  if hint ~= '' and redis.call('ZSCORE', KEYS[4], hint) then
    local ttl = live(hint)
    if ttl then return hint, ttl end
    drop(hint)
  end
  while true do
    local first = head()
    if first == '-' then return nil end
    local ttl = live(first)
    if ttl then return first, ttl end
    drop(first)
  end
end

-- ttl is text. The keys live half as long again as the entry, at least.
local function register(owner, ttl, entry)
  local first = redis.call('ZADD', KEYS[4], 'NX', stamp, owner)
  redis.call('HSET', KEYS[5], owner, text(math.floor(now / 1000) + entry) .. ' ' .. ttl)
  lengthen(KEYS[4], 2 * entry, 1.5 * entry)
  lengthen(KEYS[5], 2 * entry, 1.5 * entry)
  return first == 1
end

local function forgot() return redis.error_reply('FORGOT marker') end
