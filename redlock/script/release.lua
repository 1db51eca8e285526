-- Gives up the vote and the place in the queue, and executes the successor's request in the same step.
--   ARGV[2] owner   ARGV[3] hint: the waiter to prefer, or ''
-- Returns 1 if the vote was the owner's (freed or handed over), 0 if not.
-- Error FORGOT marker: the vote is freed, but nothing could be handed over.
local owner, hint = ARGV[2], ARGV[3]
local had = redis.call('HDEL', KEYS[1], owner)
if redis.call('EXISTS', KEYS[4]) == 0 then return had end
drop(owner)
if had == 0 or tag == '!' then return had end
local heir, ttl = nil, nil
if hint ~= '' and redis.call('ZSCORE', KEYS[4], hint) then
  ttl = live(hint)
  if ttl then heir = hint else drop(hint) end
end
while not heir do
  local first = redis.call('ZRANGE', KEYS[4], 0, 0)[1]
  if not first then return had end
  ttl = live(first)
  if ttl then heir = first else drop(first) end
end
if not hand(heir, ttl) then return forgot() end
return had
