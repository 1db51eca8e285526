-- Writes the vote with its token, if there is one. A vote that cannot be given an end (PEXPIRE is not permitted) must not
-- stay: it would be there for ever, and be no lock to others. Asked again, the command ends the script and is named by the error.
if not no then
  call('HSET', name, owner, token)
  if try('PEXPIRE', name, ttl) ~= 1 then
    call('HDEL', name, owner)
    call('PEXPIRE', name, ttl)
    no = redis.error_reply('ERR a vote could not be given an end') -- that it would be permitted by now changes nothing
  end
end
