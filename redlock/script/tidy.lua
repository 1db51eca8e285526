-- Entries of waiters that died are met by hand-overs, and while somebody holds there are none: each registration looks at
-- two places of a long queue, its head and one that changes with the time, and removes those that have run out.
--include line.lua
for _, at in ipairs({0, (now - now % 7) / 7 % entries}) do
  local waiter = head(at)
  local deadline = string.match(redis.call('HGET', KEYS[5], waiter) or '', '^%d+')
  if waiter ~= '-' and (deadline or 0) * 1000 < now then drop(waiter) end
end
