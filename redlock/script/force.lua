-- Takes the vote from whoever has it, and hands it over as a release does.
-- Returns 1 if somebody had it, 0 if nobody did. Errors: WRONGTYPE and FOREIGN no ttl, because what is
-- no lock is not ours to delete.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HLEN', KEYS[1])
if redis.call('PTTL', KEYS[1]) == -1 then return redis.error_reply('FOREIGN no ttl') end
redis.call('DEL', KEYS[1])
if tag == '!' then return 1 end
local heir, ttl = successor('')
if heir and not hand(heir, ttl) then return forgot() end
return 1
