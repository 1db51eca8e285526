-- Adds arrivals to a latch, and opens it when its count is reached. Repeated, it adds nothing.
--   KEYS, ARGV[1..4], reply as in latch.lua   ARGV[5] '1': it is open; '2': it is, and nothing is made where it is
--   not there   then pairs: id, number of its arrivals
--include latch.lua
if refused() or ARGV[5] == '2' and r < 0 then return reply() end
turn()
local fields, ids = {}, {}
for i = 6, #ARGV - 2, 2 do fields[#fields + 1] = '=' .. ARGV[i] end
local had = not new and #fields > 0 and redis.call('HMGET', KEYS[1], unpack(fields)) or {}
for i, field in ipairs(fields) do
  local of, old = string.match(had[i] or '', '^(%d+):(%d+)$')
  old = of == ARGV[2] and old + 0 or 0
  local n = ARGV[2 * i + 5] + 0
  if n > old then
    ids[#ids + 1] = field
    ids[#ids + 1] = ARGV[2] .. ':' .. whole(n)
    s = s + n - old
    d = (d + tonumber(string.sub(redis.sha1hex(ARGV[2 * i + 4]), 1, 8), 16) * (n - old)) % 281474976710656
  end
end
local told = ARGV[5] ~= '0' and not open
open = open or told
if write(ids) or told then tell() end
if new then tidy() end
return reply()
