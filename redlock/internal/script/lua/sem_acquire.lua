-- Asks for permits once.
--   KEYS[1] permits   KEYS[2] token counters   KEYS[3] marker   KEYS[4] queue   KEYS[5] waiters, and wishes
--   ARGV[1] bucket   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] the slot to try first   ARGV[5] limit: how many slots there are
--   ARGV[6] the stored limit that the client knows; 0: none   ARGV[7] how many permits   ARGV[#ARGV] marker id
-- Returns all that the owner has, "slot:token slot:token…". Else minus the ms until the earliest permit ends, at most -1: so
-- many are taken, or somebody waits. If the stored limit is greater: {that, server time in µs, '-', 0, the stored limit}. Errors
-- as acquire.
--include time.lua
--include sem_state.lua
local owner, ttl, want, known, n = ARGV[2], ARGV[3] + 0, ARGV[4] + 0, ARGV[6], ARGV[7] + 0
--include sem_cap.lua
local function reply(said)
  if told then return {said, time[1] * 1000000 + time[2], '-', 0, told} end
  return said
end
local record, taken = read(owner, want)
if record then
  keep(owner, record, ttl)
  return reply(permits(record))
end
if redis.call('EXISTS', KEYS[4]) == 1 then
  --include base.lua
  --include line.lua
  --include sem_asked.lua
  for _ = 1, 4 do -- entries that have run out are removed, a few at a time
    local first = head()
    if first == '-' then break end
    if asked(first) then return reply(refusal()) end
    leave(first)
    if _ == 4 then return reply(-1) end
  end
end
--include sem_give.lua
local slots = find(want, cap or ARGV[5] + 0, n, taken)
if not slots then return reply(refusal()) end
local has, why = give(owner, slots, ttl)
return has and reply(has) or why
