-- Draws the next token, n; nil or false, and no says why. token is what Redis is given: it writes a number in half the time, but
-- 7.2.0 to 7.2.4 write one that ends in eight zeros as 1.7e+15.
local n, no = call('HINCRBY', tokens, bucket, '1'), nil -- a string: Redis writes a number as a double, in twice the time
if n == 1 then -- the first of a bucket is the server's time
  call('HDEL', tokens, bucket) -- whatever ends the script before the bucket may begin: it has not begun
  if id ~= '' and call('HGET', marker, 'id') ~= string.match(id, '^[^/]*') then
    n, no = nil, redis.error_reply('FORGOT marker') -- this member lost its counters since the session began
  else
    time = time or call('TIME') -- see time.lua
    n = time[1] * 1000000 + time[2]
    call('HSET', tokens, bucket, string.format('%.0f', n))
  end
elseif n >= 9007199254740992 then -- a number of Lua is a double, and from 2^53 on two tokens would be one
  call('HINCRBY', tokens, bucket, '-1')
  n, no = false, redis.error_reply('EXHAUSTED tokens: the counter is at 2^53')
end
local token = n and n % 100000000 == 0 and string.format('%.0f', n) or n
