-- What the scripts of a latch share: its state at this member, which only grows. It is ordered by the round first, then by
-- each id's number of arrivals, and by open.
--   KEYS[1] latch   KEYS[2] token counters   KEYS[3] marker   KEYS[4] watches   (2 and 3: see lib.lua)
--   ARGV[1] bucket   ARGV[2] round   ARGV[3] count, 0: not told   ARGV[4] life, ms   ARGV[#ARGV] marker id (unused)
-- The latch has r, its round; k, its count (0: not told); s, the sum of all arrivals of the round; d, their digest; o, whether
-- it is open; and "=id" -> "round:number" for each id. One of an earlier round counts for nothing, so that a round begins in one
-- step. watches maps a watch to its deadline in ms.
-- Reply of each script: {round, s, k, o, d, server time in µs}. If the round is above the one asked for, that has passed. If
-- the count is another, nothing was written.
--include base.lua
--include push.lua
local round, count, life = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local head = redis.call('HMGET', KEYS[1], 'r', 'k', 's', 'd', 'o')
local r, k, s, d, open = tonumber(head[1] or '-1'), tonumber(head[2] or '0'), tonumber(head[3] or '0'), tonumber(head[4] or '0'), head[5] == '1'
local new = r < round
local function reply() return {r, s, k, open and 1 or 0, d, now} end

-- The first count that a round is told stays.
local function refused() return r > round or not new and count > 0 and k > 0 and k ~= count end

-- Turns to the round and the count that were asked for.
local function turn()
  if new then r, k, s, d, open = round, 0, 0, 0, false end
  if k == 0 then k = count end
end

local function whole(n) return string.format('%.0f', n) end

-- Writes all that has changed in one command. What stays without an end would stay for ever: see own.lua.
local function write(ids)
  local opens = not open and k > 0 and s >= k
  open = open or opens
  redis.call('HSET', KEYS[1], 'r', ARGV[2], 'k', whole(k), 's', whole(s), 'd', whole(d), 'o', open and '1' or '0', unpack(ids))
  local lives = redis.call('PTTL', KEYS[1])
  if lives < life * 0.9 and type(redis.pcall('PEXPIRE', KEYS[1], ARGV[4])) == 'table' then
    if lives == -1 then redis.call('DEL', KEYS[1]) end
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
    error('ERR a latch could not be given an end', 0)
  end
  return opens
end

-- Tells those that wait that the latch is open, or that their round has passed. A watch that is not told hears it with its
-- next heartbeat.
local function tell()
  local all = ask('HGETALL', KEYS[4]) or {}
  for i = 1, math.min(#all, 4000), 2 do push(all[i], 'o ' .. all[i] .. ' ' .. ARGV[2]) end
  if #all > 0 then redis.call('DEL', KEYS[4]) end
end

-- A round that begins takes what an earlier one has left. It is left behind only if this is interrupted, and then the next
-- round takes it.
local function tidy()
  tell()
  local all, gone = redis.call('HGETALL', KEYS[1]), {}
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == '=' and string.match(all[i + 1], '^%d+') ~= ARGV[2] then
      gone[#gone + 1] = all[i]
      if #gone == 1000 then
        redis.call('HDEL', KEYS[1], unpack(gone))
        gone = {}
      end
    end
  end
  if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
end
