-- raise, with Config.Interop.   ARGV[2] owner   ARGV[3] token
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
lift(tonumber(ARGV[3]))
return 1
