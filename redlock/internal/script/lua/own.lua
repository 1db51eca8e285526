-- Writes the vote with the token n, if there is one. A vote that cannot be given an end (PEXPIRE is not permitted) must not
-- stay: it would be there for ever, and be no lock to others. Asked again, the command ends the script and is named by the error.
if n then
  -- Redis writes a number in half the time. But 7.2.0 to 7.2.4 write one that ends in eight zeros as 1.7e+15.
  call('HSET', name, owner, n % 100000000 == 0 and string.format('%.0f', n) or n)
  if try('PEXPIRE', name, ttl) ~= 1 then
    call('HDEL', name, owner)
    call('PEXPIRE', name, ttl)
    n, no = false, redis.error_reply('ERR a vote could not be given an end') -- that it would be permitted by now changes nothing
  end
end
