-- Asks for permits once.
--   KEYS[1] permits   KEYS[2] token counters   KEYS[3] marker   KEYS[4] queue   KEYS[5] waiters, and wishes
--   ARGV[1] bucket   ARGV[2] owner   ARGV[3] TTL, ms   ARGV[4] the slot to try first   ARGV[5] limit: how many slots there are
--   ARGV[6] the stored limit that the client knows; 0: none   ARGV[7] how many permits   ARGV[#ARGV] marker id
-- Returns all that the owner has, "slot:token slot:token…". Else minus the ms until the earliest permit ends, at most -1: so
-- many are taken, or somebody waits. If the stored limit is greater: {that, server time in µs, '-', 0, the stored limit}. Errors
-- as acquire.
--
-- The usual case first, in fewer commands than the rest of the script has for it, and in a third of its time: one permit, of a
-- slot that is free, with no stored limit, and nobody waits.
local want = ARGV[4]
if ARGV[7] == '1' and redis.call('EXISTS', KEYS[4]) == 0 then
  local r = redis.call('HMGET', KEYS[1], ARGV[2], want, '.', '-')
  if not r[1] and not r[2] and want + 0 < ARGV[5] + 0 and (not r[3] or redis.call('HLEN', KEYS[1]) < 2 * ARGV[5] + 2)
    and not redis.call('HGET', KEYS[2], 'limit:' .. KEYS[1]) and ARGV[6] == '0' then
    --include time.lua
    local ms = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
    local deadline = ms + ARGV[3]
    if not r[3] or r[3] + 0 <= deadline and r[4] + 0 > deadline then
      local bucket = ARGV[1] .. '.' .. (want + 0 < 256 and want or want % 256)
      local n = redis.call('HINCRBY', KEYS[2], bucket, '1')
      if n == 1 then
        redis.call('HDEL', KEYS[2], bucket) -- the rest compares the marker
      elseif n >= 9007199254740992 then
        redis.call('HINCRBY', KEYS[2], bucket, '-1')
      else
        local has = string.format('%s:%.0f', want, n) -- not %d, which is an int of 32 bits in a server of 32 bits
        if r[3] then
          redis.call('HSET', KEYS[1], ARGV[2], deadline .. ' ' .. has, want, ARGV[2]) -- printed in full below 10^14
          return has
        end
        redis.call('HSET', KEYS[1], ARGV[2], deadline .. ' ' .. has, want, ARGV[2], '.', deadline .. '', '-', deadline + ARGV[3] .. '')
        if type(redis.pcall('PEXPIRE', KEYS[1], 2 * ARGV[3] + 1)) == 'table' then -- see own.lua
          redis.call('DEL', KEYS[1])
          redis.call('PEXPIRE', KEYS[1], '1')
          return redis.error_reply('ERR a vote could not be given an end')
        end
        return has
      end
    end
  end
end
--include time.lua
--include sem_state.lua
local owner, ttl, known, n = ARGV[2], ARGV[3] + 0, ARGV[6], ARGV[7] + 0
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
local slots = find(want + 0, cap or ARGV[5] + 0, n, taken)
if not slots then return reply(refusal()) end
local has, why = give(owner, slots, ttl)
return has and reply(has) or why
