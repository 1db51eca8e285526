-- force, with Config.Interop.   ARGV[2], ARGV[3] as there
--include lib.lua
--include interop.lua
redis.call('HLEN', KEYS[1])
if redis.call('PTTL', KEYS[1]) == -1 then return redis.error_reply('FOREIGN no ttl') end
--include bury.lua
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[2] ~= '' and redis.sha1hex(redis.call('HKEYS', KEYS[1])[1]) ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
if not pass('') then return redis.error_reply('FORGOT marker') end
return 1
