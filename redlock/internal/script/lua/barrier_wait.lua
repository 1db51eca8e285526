-- Arrives at a barrier and asks how it stands, repeated as a heartbeat; or withdraws what it arrived with.
--   KEYS[1] barrier   KEYS[2] token counters   KEYS[3] marker   (2 and 3: see lib.lua)
--   ARGV[1] bucket   ARGV[2] round   ARGV[3] parties   ARGV[4] life, ms   ARGV[5] the round before, if the caller knows that
--   it opened; 0: it does not   ARGV[6] digest of the parties of that one; 0: not known   ARGV[7] party   ARGV[8] watch
--   ARGV[9] lifetime of the arrival, ms; 0: it is withdrawn, and nothing else is written   ARGV[#ARGV] marker id (unused)
-- The barrier has r, its round; k, its parties; o, whether this member has opened the round, and then d, the digest of those
-- that it counted; p, the round before, if that is known to have opened, and q, the digest of its parties; f, whether the
-- fields are the parties of that one; and "=party" -> "round:1 deadline watch". A record of another round counts for nothing,
-- and a deadline in ms that has passed neither. s is at least the number of records of the round: who may be the last one
-- counts them.
-- Reply: {r, s, k, o, d, server time in µs, p, m, q}. m is 0 if the party is none of those that this member knows, 1 if it knows
-- none. Of the round that was asked for, if this member has opened it, m is 2 if the arrival of this watch was counted, 3 if
-- another one of the party was.
--include base.lua
--include push.lua
local round, count, before, entry = ARGV[2] + 0, ARGV[3] + 0, ARGV[5] + 0, ARGV[9] + 0
local own, watch, clock = '=' .. ARGV[7], ARGV[8], (now - now % 1000) / 1000
local head = redis.call('HMGET', KEYS[1], 'r', 'k', 's', 'd', 'o', 'p', 'f', own, 'q')
local r, k, s, d, p, q = tonumber(head[1] or '-1'), tonumber(head[2] or '0'), tonumber(head[3] or '0'), tonumber(head[4] or '0'), tonumber(head[6] or '0'), tonumber(head[9] or '0')
local open, known, mine = head[5] == '1', head[7] == '1', head[8]
local of, by = string.match(mine or '', '^(%d+):1 %d+ (.*)$')
local there = of == ARGV[2] -- the party has a record of the round

local function whole(n) return string.format('%.0f', n) end
local function weight(field) return tonumber(string.sub(redis.sha1hex(field), 1, 12), 16) end

local function reply()
  local m = 1
  if not mine and (open or known) then
    m = 0
  elseif there and (open and r == round or known and p == round) then
    m = by == watch and 2 or 3
  end
  return {r, s, k, open and 1 or 0, d, now, p, m, q}
end

if r > round or entry == 0 then
  if r == round and not open and there and by == watch then
    s = s - 1
    redis.call('HSET', KEYS[1], own, '0:1 0 -', 's', whole(s))
  end
  return reply()
end
if r == round and (k ~= count or open or known and not mine) then return reply() end

local new, passed, counted, gone = r < round, {}, {}, {}
if new then
  local kept = open and r == before and k == count and d == ARGV[6] + 0 -- its parties are those of the next round
  if not kept then
    local all = redis.call('HGETALL', KEYS[1])
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 1) == '=' and all[i] ~= own then
        gone[#gone + 1] = all[i]
        local was, who = string.match(all[i + 1], '^(%d+):1 %d+ (.*)$')
        if not open and was == head[1] then passed[#passed + 1] = who end
      end
    end
    mine = false
  end
  r, k, s, d, p, q, open, known, there = round, count, 0, 0, before, ARGV[6] + 0, false, kept, false
end

-- Parties that are known stay so when their arrivals end.
local function drop()
  for i = 1, #gone, 1000 do
    local some = {}
    for j = i, math.min(i + 999, #gone) do
      some[#some + 1] = gone[j]
      if known then some[#some + 1] = '0:1 0 -' end
    end
    redis.call(known and 'HSET' or 'HDEL', KEYS[1], unpack(some))
  end
  gone = {}
end

local fields = {}
if mine or not known then
  if not there then s = s + 1 end
  fields = {own, ARGV[2] .. ':1 ' .. whole(clock + entry) .. ' ' .. watch}
  mine, there, by = fields[2], true, watch
  if s >= k then
    s, d = 1, weight(own)
    local all = new and {} or redis.call('HGETALL', KEYS[1]) -- a round that begins has no records
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 1) == '=' and all[i] ~= own then
        local was, till, who = string.match(all[i + 1], '^(%d+):1 (%d+) (.*)$')
        if was == ARGV[2] and till + 0 >= clock then
          s, d = s + 1, (d + weight(all[i])) % 281474976710656
          counted[#counted + 1] = who
        elseif was == ARGV[2] or not known then
          gone[#gone + 1] = all[i]
        end
      end
    end
    drop()
    open = s >= k
    if not open then d, counted = 0, {} end
  end
end
redis.call('HSET', KEYS[1], 'r', ARGV[2], 'k', ARGV[3], 's', whole(s), 'd', whole(d), 'o', open and '1' or '0', 'p', whole(p), 'q', whole(q), 'f', known and '1' or '0', unpack(fields))
-- What stays without an end would stay for ever: see own.lua.
local lives = redis.call('PTTL', KEYS[1])
if lives < ARGV[4] * 0.9 and type(redis.pcall('PEXPIRE', KEYS[1], ARGV[4])) == 'table' then
  if lives == -1 then redis.call('DEL', KEYS[1]) end
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  error('ERR a barrier could not be given an end', 0)
end
-- Those that waited for this round, and for one before it. Whoever is not told hears it with its next heartbeat.
local function tell(all)
  for i = 1, math.min(#all, 2000) do push(all[i], 'b ' .. all[i] .. ' ' .. ARGV[2] .. ' ' .. whole(d)) end
end
tell(counted)
tell(passed)
drop()
return reply()
