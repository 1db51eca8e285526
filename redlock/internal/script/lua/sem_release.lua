-- Gives up all that the owner has, and its place in line, and executes the successors' requests in the same step. Where nobody
-- waits, that costs HGET, EXISTS, HLEN and HDEL.
--   KEYS, ARGV[1], ARGV[#ARGV] as in sem_acquire.lua   ARGV[2] owner   ARGV[3] hint: the waiter to prefer, or ''
--   ARGV[4] the slots of its lease, "3 5"; '' for none
-- Returns 1 if the owner had all of those here, else 0: the slots that a lost attempt had are no vote of the lease.
-- Error FORGOT marker: all is freed, but nothing could be handed over.
local record = redis.call('HGET', KEYS[1], ARGV[2])
if redis.call('EXISTS', KEYS[5]) == 0 then
  if not record then return 0 end
  local slot = string.match(record, '^%d+ (%d+):%d+$')
  if slot then -- the only one
    if redis.call('HLEN', KEYS[1]) == 4 then redis.call('DEL', KEYS[1]) else redis.call('HDEL', KEYS[1], ARGV[2], slot) end
    return (ARGV[4] == slot or ARGV[4] == '') and 1 or 0
  end
end
local function had()
  if not record then return 0 end
  for slot in string.gmatch(ARGV[4], '%d+') do
    if not string.find(record, ' ' .. slot .. ':', 1, true) then return 0 end
  end
  return 1
end
local owner, known = ARGV[2], '0'
--include time.lua
--include sem_state.lua
--include sem_cap.lua
--include sem_line.lua
--include sem_take.lua
record = read(owner, '.')
leave(owner)
local slots = {}
if record then slots = take(owner, record) end
for slot in string.gmatch(ARGV[4], '%d+') do -- where it was another's, or the vote was never given
  slots[#slots + 1] = slot
end
local done, why = true, nil
if tag ~= '!' then done, why = hands(slots, ARGV[3]) end
clear()
if not done then return why end
return had()
