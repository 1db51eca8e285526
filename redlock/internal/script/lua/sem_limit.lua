-- Stores a limit, unless a greater one is there (sem_cap.lua), and serves the line if there are more slots now.
--   KEYS, ARGV[1], ARGV[#ARGV] as in sem_acquire.lua   ARGV[2] version * 2^13 + limit; 0: none, only to be told
-- Returns {the stored limit or 0, server time in µs}. Error FORGOT marker: what this member promises is not to be counted.
--include time.lua
--include sem_state.lua
local known = ARGV[2]
--include base.lua
if tag ~= '' and redis.call('HGET', KEYS[3], 'id') ~= tag then return redis.error_reply('FORGOT marker') end
--include sem_cap.lua
--include sem_line.lua
read('.', '.')
local done, why = admit()
if not done then return why end
return {told or known + 0, now}
