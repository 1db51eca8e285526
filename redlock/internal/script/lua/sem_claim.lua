-- Gives up a vote, and asks for certain slots alone: those that the attempt has at the member whom all follow.
--   KEYS, ARGV[1], ARGV[#ARGV] as in sem_acquire.lua   ARGV[2] owner   ARGV[3] what it gives up, "slot:token…", or ''
--   ARGV[4] the slots that it asks for, "3 5"; none, "-3": it goes back to the line, for slot 3 first   ARGV[5] TTL of a grant, ms
--   ARGV[6] lifetime of the entry, ms   ARGV[7] limit   ARGV[8] the stored limit that the client knows
--   ARGV[9] how many permits; 0: it stands in no line
-- A slot that is both given up and asked for stays the owner's, with its token. If the owner has something else here than what
-- it gives up, only that is said. Returns as sem_wait.lua.
--include time.lua
--include sem_state.lua
local owner, want, ttl, entry, limit, known = ARGV[2], ARGV[4], ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0, ARGV[8]
--include sem_cap.lua
--include sem_line.lua
--include sem_take.lua
local record = read(owner, '.')

-- Whether a record is of these permits, in whatever order.
local function is(record, given)
  local n = 0
  for one in string.gmatch(given, '%S+') do
    n = n + 1
    if not string.find(record .. ' ', ' ' .. one .. ' ', 1, true) then return false end
  end
  for _ in string.gmatch(record, ':') do n = n - 1 end
  return n == 0
end

if record and not is(record, ARGV[3]) then
  keep(owner, record, ttl)
  drop(owner)
  local done, why = admit() -- what an interrupted one has freed
  if not done then return why end
  return {permits(record), now, successor(cap or limit, permits(record)), 0, told}
end
leave(owner)
local wanted, asks, missing = {}, {}, {}
local back = string.match(want, '^%-(%d+)$')
for slot in string.gmatch(back and '' or want, '%d+') do
  wanted[slot] = true
  asks[#asks + 1] = slot
end
local freed = {}
if record then freed, record = take(owner, record, wanted) end
if record then keep(owner, record, ttl) end -- what stays is granted anew
for _, slot in ipairs(asks) do
  if not (record and string.find(record, ' ' .. slot .. ':', 1, true)) then
    local most = cap or limit
    if earliest and redis.call('HGET', KEYS[1], slot) or slot + 0 >= most or used >= most then
      missing[#missing + 1] = slot
    else
      local has, why = give(owner, {slot + 0}, ttl, record)
      if not has then return why end
      record = redis.call('HGET', KEYS[1], owner)
    end
  end
end
local done, why = hands(freed, '')
clear()
if not done then return why end
if #missing > 0 then wish(owner, missing, ttl, entry, limit) end
if record then return {permits(record), now, successor(cap or limit, permits(record)), 0, told} end
if ARGV[9] ~= '0' then stand(owner, ttl, entry, asks[1] or back or 0, limit, ARGV[9]) end
return {refusal(entry), now, '-', 0, told}
