-- Carries a marker to another slot of the same master, whose former slot was given away. The caller has a
-- session that was admitted under it. Unless another client has carried it, or the memory is another: then q alone
-- is raised, since who carried it may have known a smaller one. Nothing ends a quarantine early that is here already,
-- or that the caller knows of: another client may have carried a shorter one. Who raised q where the marker was, after
-- the caller looked, raises it here at its next look. Nobody relies on this marker before: it says that q was raised.
--   ARGV[1] id   ARGV[2] state   ARGV[3] q, ms   ARGV[4] clk   ARGV[5] replication id
--   ARGV[6] what is left of the quarantine, ms   ARGV[7] how long ago q may have been raised, ms; '' it was not
--   ARGV[8] the word that it was announced with, before the master was seen to remember. Whatever empties the master
--   takes the announcement with it, and no marker comes back then.
local function made(id) return tonumber(string.match(id or '', ' (%d+)$') or 0) end
local id = redis.call('HGET', KEYS[1], 'id')
local repl = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
if repl ~= ARGV[5] or id ~= ARGV[1] and made(id) > made(ARGV[1]) then return look() end
if id == ARGV[1] then
  raise(ARGV[3])
elseif redis.call('HGET', KEYS[3], 'pending') ~= ARGV[8] then
  return look()
else
  redis.call('HDEL', KEYS[3], 'pending')
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'state', ARGV[2], 'q', ARGV[3], 'clk', ARGV[4], 'repl', ARGV[5])
  if ARGV[7] ~= '' then
    local t = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'lifted', string.format('%.0f', t[1] * 1000000 + t[2] - ARGV[7] * 1000))
  end
end
local left = tonumber(ARGV[6])
if left > 0 and redis.call('PTTL', KEYS[2]) < left then redis.call('SET', KEYS[2], '1', 'PX', ARGV[6]) end
return look()
