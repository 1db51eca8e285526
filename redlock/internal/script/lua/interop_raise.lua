-- raise, with Config.Interop.   ARGV[2] owner   ARGV[3] token
--include lib.lua
--include interop.lua
local vote = redis.call('HGET', KEYS[1], ARGV[2])
if not vote or tonumber(vote) > tonumber(ARGV[3]) then return 0 end
lift(tonumber(ARGV[3]))
return 1
