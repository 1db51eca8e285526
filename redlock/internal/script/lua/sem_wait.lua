-- Asks for permits and stays registered where they are not to be had. Repeated as a heartbeat.
--   KEYS, ARGV[1], ARGV[#ARGV] as in sem_acquire.lua   ARGV[2] owner   ARGV[3] TTL of a grant, ms   ARGV[4] lifetime of the
--   entry, ms   ARGV[5] the slot to try first   ARGV[6] limit   ARGV[7] the stored limit that the client knows; 0: none
--   ARGV[8] how many permits
-- Returns {all that the owner has, or minus the ms until the earliest permit ends, of none a third of the entry; server time in
-- µs; who succeeds the owner, or '-'; 0; the stored limit, if it is greater}. Errors as acquire.
--include time.lua
--include sem_state.lua
local owner, ttl, entry, want, limit, known, n = ARGV[2], ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0, ARGV[7], ARGV[8] + 0
--include sem_cap.lua
--include sem_line.lua
local record, taken = read(owner, want)
if record then
  keep(owner, record, ttl)
  drop(owner)
  return {permits(record), now, successor(cap or limit, permits(record)), 0, told}
end
unwish(owner)
local first = head()
if first == '-' or first == owner then
  local slots = find(want, cap or limit, n, taken)
  if slots then
    local has, why = give(owner, slots, ttl)
    if not has then return why end
    drop(owner)
    return {has, now, successor(cap or limit, has), 0, told}
  end
end
stand(owner, ttl, entry, want, limit, n)
if used < (cap or limit) then
  local done, why = admit()
  if not done then return why end
  record = redis.call('HGET', KEYS[1], owner)
  if record then return {permits(record), now, successor(cap or limit, permits(record)), 0, told} end
end
return {refusal(entry), now, '-', 0, told}
