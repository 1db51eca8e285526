-- Reads a page of a latch. Changes nothing. A latch only grows, so that pages of several moments are one state that it had
-- reached at the last of them.
--   KEYS[1] latch   KEYS[2], KEYS[3] as in latch.lua   KEYS[4] watches
--   ARGV[1] bucket   ARGV[2] cursor   ARGV[3] how many, about   ARGV[4] marker id (unused)
-- Returns {round or -1, s, k, o, d, server time in µs, PTTL, watches, next cursor, then id and number of each arrival}.
--include time.lua
local head = redis.call('HMGET', KEYS[1], 'r', 'k', 's', 'd', 'o')
local page = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local out = {tonumber(head[1] or '-1'), tonumber(head[3] or '0'), tonumber(head[2] or '0'), tonumber(head[5] or '0'), tonumber(head[4] or '0'),
  time[1] * 1000000 + time[2], redis.call('PTTL', KEYS[1]), redis.call('HLEN', KEYS[4]), page[1]}
for i = 1, #page[2], 2 do
  local of, n = string.match(page[2][i + 1], '^(%d+):(%d+)')
  if of and of == head[1] and string.sub(page[2][i], 1, 1) == '=' then
    out[#out + 1] = string.sub(page[2][i], 2)
    out[#out + 1] = n
  end
end
return out
