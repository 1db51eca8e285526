-- Whether the owner lost this lock by force (bury.lua).
local function buried(owner)
  local all = redis.call('HMGET', KEYS[5], '!', '!' .. redis.sha1hex(owner))
  return tonumber(all[1] or 0) * 1000 > now or tonumber(all[2] or 0) * 1000 > now
end
