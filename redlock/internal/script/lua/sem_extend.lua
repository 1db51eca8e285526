-- Renews many leases of permits in one call. Never shortens.
--   KEYS[i] permits   ARGV[3i-2] owner   ARGV[3i-1] TTL, ms   ARGV[3i] the slots of its lease, "3 5"   last: marker id (unused)
-- Returns an array, per lease 1 = renewed, 0 = the owner does not have all of those slots, so that this is no vote of the lease,
-- -1 = not a semaphore at all. Otherwise as extend.
--include time.lua
local ms = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local out = {}
for i, key in ipairs(KEYS) do
  local owner, ttl = ARGV[3 * i - 2], ARGV[3 * i - 1] + 0
  local record = redis.pcall('HGET', key, owner)
  if type(record) == 'table' then
    if not string.find(record.err, 'WRONGTYPE', 1, true) then redis.call('HGET', key, owner) end
    out[i] = -1
  else
    local deadline, slots = string.match(record or '', '^(%d+)( .*)$')
    out[i] = deadline and deadline + 0 >= ms and 1 or 0
    if out[i] == 1 then
      for slot in string.gmatch(ARGV[3 * i], '%d+') do
        if not string.find(slots, ' ' .. slot .. ':', 1, true) then out[i] = 0 end
      end
    end
    if out[i] == 1 then -- the key first: it outlives what is in it; and see keep in mine.lua
      deadline = math.max(deadline + 0, ms + ttl)
      local left = redis.call('PTTL', key)
      redis.call('PEXPIRE', key, string.format('%.0f', left <= deadline - ms and 2 * (deadline - ms) + 1 or left + 1))
      redis.call('HSET', key, owner, string.format('%.0f', deadline) .. slots)
    end
  end
end
return out
