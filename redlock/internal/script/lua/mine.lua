-- Whether the vote is that of an owner who is in the hash. A hand-over writes the new owner before it deletes the old one:
-- where it was interrupted between, there are both, and the vote is that of the greater token. The other one is given up,
-- though who gives it up has not been told so, and asks again.
local function mine(key, owner)
  if redis.call('HLEN', key) == 1 then return true end
  local all, heir, most = redis.call('HGETALL', key), nil, -1
  for i = 1, #all, 2 do
    local token = tonumber(all[i + 1]) or 0
    if token > most then heir, most = all[i], token end
  end
  return heir == owner
end

-- Lengthens what is the owner's, and writes in any case: from Redis 7.2 on WAIT waits for what its connection has written,
-- and where replicas must have a vote, it is of no use that another connection wrote it. It needs no memory. So it comes before
-- all that needs some: a server that has none left refuses a script at the first of its writes alone, and only if that needs some.
local function keep(key, ttl)
  local left = redis.call('PTTL', key)
  redis.call('PEXPIRE', key, left < tonumber(ttl) and ttl or string.format('%.0f', left))
end
