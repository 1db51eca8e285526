-- Takes all permits from one owner, or from every one, and hands them over as a release does.
--   ARGV as force   Returns 1 if there were any, else 0. Error WRONGTYPE.
--include time.lua
--include sem_state.lua
local known = '0'
--include sem_cap.lua
--include sem_line.lua
--include sem_take.lua
read('.', '.')
for _, field in ipairs(redis.call('HKEYS', KEYS[5])) do
  local owner = string.match(field, '^<(.*)$')
  if owner and (ARGV[2] == '' or redis.sha1hex(owner) == ARGV[2]) then unwish(owner) end
end
--include bury.lua
local slots, all = {}, earliest and redis.call('HGETALL', KEYS[1]) or {}
for i = 1, #all, 2 do
  if string.find(all[i], ':', 1, true) and (ARGV[2] == '' or redis.sha1hex(all[i]) == ARGV[2]) then
    for _, slot in ipairs(take(all[i], all[i + 1])) do slots[#slots + 1] = slot end
  end
end
local done, why = true, nil
if tag ~= '!' then done, why = hands(slots, '') end
clear()
if not done then return why end
return #slots > 0 and 1 or 0
