-- Entries of waiters that died are met by hand-overs, and while somebody holds there are none. So one registration in seven
-- looks at eight places of a long queue, others each time, and removes those that have run out. What a queue that has ended
-- has left in waiters, and a force (bury.lua), is in no place: if there is any, now and then all are looked at.
local entries = redis.call('HLEN', KEYS[5])
if entries > 8 then
  --include line.lua
  local function over(entry) return tonumber(string.match(entry or '', '^%d+') or 0) * 1000 < now end
  local first = (now - now % 1009) / 1009 % entries
  local places = ask('ZRANGE', KEYS[4], first, first + 7)
  if places and #places > 0 then
    for i, entry in ipairs(redis.call('HMGET', KEYS[5], unpack(places))) do
      if over(entry) then drop(places[i]) end
    end
  end
  if first == 0 and head(entries - 1) == '-' then
    local all = redis.call('HGETALL', KEYS[5])
    for i = 1, #all, 2 do
      if over(all[i + 1]) then
        drop(all[i])
        redis.call('HDEL', KEYS[5], all[i])
      end
    end
  end
end
