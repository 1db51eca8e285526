-- Whom a yield prefers in a long line. It looks at few waiters only: the 32 that hash lowest, as another yield found them less
-- than a second ago, and those that came since and hash below the last of these, which is the bound. They are kept in a field of
-- waiters that is of no waiter, as "deadline_ms µs bound owners". If none of them is preferred to an owner that hashes above
-- the bound, the yield looks at all, and keeps the 32 lowest of these.
local ends, seen, bound, owners = string.match(redis.call('HGET', KEYS[5], '!few') or '', '^(%d+) (%d+) (%w+)(.*)$')
local few, known, hashes = {}, {}, {}
if ends and now < ends * 1000 and now >= seen + 0 then -- a clock that goes back hides no waiter for longer than a second
  for waiter in string.gmatch(owners, '%S+') do
    known[waiter] = true
    table.insert(few, waiter)
  end
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[4], seen, '+inf', 'BYSCORE')) do
    if not known[waiter] and redis.sha1hex(waiter) < bound then table.insert(few, waiter) end
  end
  prefer(few)
else
  bound = ''
end
if lowest >= bound then
  few, ends, bound = {}, (now - now % 1000) / 1000 + 1000, 'none' -- above all hashes
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[4], '0', '-1')) do
    local hash, place = redis.sha1hex(waiter), #few + 1
    if hash < bound then
      while place > 1 and hashes[place - 1] > hash do place = place - 1 end
      table.insert(hashes, place, hash)
      table.insert(few, place, waiter)
      few[33], hashes[33] = nil, nil
      bound = hashes[32] or bound
    end
  end
  prefer(few)
end
sure = lowest < bound
local kept = {ends, stamp, bound}
for _, waiter in ipairs(few) do
  if not gone[waiter] then table.insert(kept, waiter) end
end
redis.call('HSET', KEYS[5], '!few', table.concat(kept, ' '))
