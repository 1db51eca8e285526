-- Carries a marker to another slot of the same master, whose former slot was given away. The caller has a
-- session that was admitted under it. Unless another client has carried it, or the memory is another: then q alone
-- is raised, since who carried it may have known a smaller one.
--   ARGV[1] id   ARGV[2] state   ARGV[3] q, ms   ARGV[4] clk   ARGV[5] replication id
--   ARGV[6] what is left of the quarantine, ms
local function made(id) return tonumber(string.match(id or '', ' (%d+)$') or 0) end
local id = redis.call('HGET', KEYS[1], 'id')
local repl = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
if repl == ARGV[5] and id == ARGV[1] then raise(ARGV[3]) end
if repl ~= ARGV[5] or id == ARGV[1] or made(id) > made(ARGV[1]) then return look() end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'state', ARGV[2], 'q', ARGV[3], 'clk', ARGV[4], 'repl', ARGV[5])
if tonumber(ARGV[6]) > 0 then redis.call('SET', KEYS[2], '1', 'PX', ARGV[6]) end
return look()
