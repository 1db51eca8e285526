-- Whether what is under the name of the lock is other data, which has a TTL by chance. All fields of a lock are owners: a client,
-- 26 of A to Z and 2 to 7, or Redisson's UUID, and a number. All values are tokens, or Redisson's counts. If readers have it,
-- it has the field r of rw.lua, and may be long: it is not read then.
local function alien(all)
  for i = 1, #all, 2 do
    if all[i] == 'r' then return not string.find(all[i + 1], '^%d+ %d+ ') end
    local client = string.match(all[i], '^([%w-]+):%-?%d+$') or ''
    local ours = #client == 26 and not string.find(client, '[^A-Z2-7]')
    local theirs = #client == 36 and string.find(client, '^%x+%-%x+%-%x+%-%x+%-%x+$')
    if not (ours or theirs) or string.find(all[i + 1], '%D') then return true end
  end
  return false
end

local function foreign(key)
  if redis.call('HLEN', key) < 9 then return alien(redis.call('HGETALL', key)) end
  return alien({'r', redis.call('HGET', key, 'r') or ''})
end
