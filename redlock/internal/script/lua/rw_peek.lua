-- What one member knows of a lock that may have readers. Changes nothing.
--   ARGV[1] bucket   ARGV[2] 'holders': who waits is left out
-- Returns what peek does. In a read phase {drawn told marking} stands for the owner, and in place
-- of its token an array of each reader and until when it has the vote (ms). A reader that waits has
-- no place: 0 stands for its time.
local time = redis.call('TIME')
local lock = redis.call('HGETALL', KEYS[1])
local all = lock
--include alien.lua
if alien then return redis.error_reply('FOREIGN no lock') end
local owner, value = lock[1] or '', lock[2] or '0'
local phase = redis.call('HGET', KEYS[1], 'r')
if phase then
  owner, value = phase, {}
  for i = 1, #lock, 2 do
    if lock[i] ~= 'r' then
      value[#value + 1] = lock[i]
      value[#value + 1] = lock[i + 1]
    end
  end
end
local out = {time[1] * 1000000 + time[2], redis.call('PTTL', KEYS[1]), redis.call('HGET', KEYS[2], ARGV[1]) or '0',
  redis.call('HGET', KEYS[3], 'state') or '', owner, value}
local function add(waiter, at, entry)
  local deadline, ttl = string.match(entry or '', '^(%d+) (%d+)')
  out[#out + 1] = waiter
  out[#out + 1] = at
  out[#out + 1] = deadline or '0'
  out[#out + 1] = ttl or '0'
end
if ARGV[2] == 'holders' then return out end
local queue = redis.call('ZRANGE', KEYS[4], '1', '+inf', 'BYSCORE', 'WITHSCORES') -- without holders: see wish.lua
for i = 1, #queue, 2 do add(queue[i], string.format('%.0f', queue[i + 1] + 0), redis.call('HGET', KEYS[5], queue[i])) end
local entries = redis.call('HGETALL', KEYS[5])
for i = 1, #entries, 2 do
  if string.match(entries[i + 1], ' r$') then add(entries[i], '0', entries[i + 1]) end
end
return out
