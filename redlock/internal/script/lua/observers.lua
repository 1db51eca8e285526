-- Calls f for each observer whose deadline is to come, and forgets the others.
local function tell(f)
  local all = ask('HGETALL', KEYS[5]) or {}
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) * 1000 < now then
      ask('HDEL', KEYS[5], all[i])
    elseif f then
      f(all[i])
    end
  end
end
