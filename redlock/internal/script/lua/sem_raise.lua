-- Lifts the counters of slots to the tokens that a majority is about to hand out, where the owner still has each of them by a
-- token that is not above: see raise.lua.
--   KEYS[1] permits   KEYS[2] token counters   ARGV[1] bucket   ARGV[2] owner   ARGV[3] "slot:token slot:token…"
--   ARGV[4] marker id (unused)
-- Returns 1, or 0 if a slot is not the owner's, or by a greater token: no counter is lifted then.
--include time.lua
local record = redis.call('HGET', KEYS[1], ARGV[2])
if not record or string.match(record, '^%d+') * 1000 < time[1] * 1000000 + time[2] - time[2] % 1000 then return 0 end
for slot, token in string.gmatch(ARGV[3], '(%d+):(%d+)') do
  local has = string.match(record, ' ' .. slot .. ':(%d+)')
  if not has or has + 0 > token + 0 then return 0 end
end
for slot, token in string.gmatch(ARGV[3], '(%d+):(%d+)') do
  local bucket = ARGV[1] .. '.' .. slot % 256
  local n = redis.call('HGET', KEYS[2], bucket) or '0' -- it writes in any case: see keep in mine.lua
  redis.call('HSET', KEYS[2], bucket, n + 0 < token + 0 and token or n)
end
return 1
