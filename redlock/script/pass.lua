-- The rest of release, where somebody waits.
local had = redis.call('HEXISTS', KEYS[1], owner)
drop(owner)
if had == 0 then return 0 end
local heir, ttl
if tag ~= '!' then heir, ttl = successor(hint) end
local handed = heir and hand(heir, ttl)
redis.call('HDEL', KEYS[1], owner)
if heir and not handed then return forgot() end
return 1
