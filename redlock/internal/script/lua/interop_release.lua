-- release, with Config.Interop.   ARGV[2] owner   ARGV[3] hint
--include lib.lua
--include interop.lua
local owner, hint = ARGV[2], ARGV[3]
local had = redis.call('HEXISTS', KEYS[1], owner)
local waited = drop(owner)
if had == 0 then
  --include withdraw.lua
  return 0
end
if redis.call('HLEN', KEYS[1]) > 1 then return redis.call('HDEL', KEYS[1], owner) end -- see pass.lua
if not pass(owner, hint) then return redis.error_reply('FORGOT marker') end
return had
