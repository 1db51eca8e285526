-- The rest of release, where somebody waits.
drop(owner)
if had == 0 or tag == '!' then return had end
local heir, ttl = successor(hint)
if heir and not hand(heir, ttl) then return forgot() end
return had
