-- force, with Config.Interop.   ARGV[2], ARGV[3] as there
--include lib.lua
--include interop.lua
redis.call('HLEN', KEYS[1])
if redis.call('PTTL', KEYS[1]) == -1 then return redis.error_reply('FOREIGN no ttl') end
--include foreign.lua
if foreign(KEYS[1]) then return redis.error_reply('FOREIGN no lock') end
--include bury.lua
--include rob.lua
if not pass('', '') then return redis.error_reply('FORGOT marker') end
return 1
