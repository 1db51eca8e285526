-- Claims the restoring of this member for one client, so that one copies the counters and not all that see the quarantine end.
--   ARGV[1] the id it was marked with   ARGV[2] the client's word   ARGV[3] for how long, ms; '0': gives its claim up
--   ARGV[4] '0', or for how long too few members must have known, ms: the client knows of too few, and others may know of more
-- Returns what look does and, if the member waits to be restored, a list behind it: '' the claim is the caller's, 'claimed' it is
-- another's, 'few' it is too early; and for how long, ms.
local r = look()
if not waits(r) then return r end
local h = redis.call('HMGET', KEYS[1], 'by', 'till', 'few')
if ARGV[3] == '0' then
  if h[1] == ARGV[2] then redis.call('HDEL', KEYS[1], 'by', 'till') end
  return r
end
local why, left = 'claimed', 0
if h[1] and h[1] ~= ARGV[2] then left = h[2] - r[6] end
if left > 60000000 then left = 0 end -- the clock was set back: nobody claims for so long
if left <= 0 then
  why = 'few'
  if ARGV[4] == '0' then
    if h[3] then redis.call('HDEL', KEYS[1], 'few') end
  else
    if not h[3] or h[3] + 0 > r[6] then
      h[3] = r[6]
      redis.call('HSET', KEYS[1], 'few', string.format('%.0f', r[6]))
    end
    left = h[3] + ARGV[4] * 1000 - r[6]
  end
end
if left <= 0 then
  why, left = '', 0
  redis.call('HSET', KEYS[1], 'by', ARGV[2], 'till', string.format('%.0f', r[6] + ARGV[3] * 1000))
end
r[#r + 1] = {why, math.ceil(left / 1000)}
return r
