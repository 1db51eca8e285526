-- What a registered owner asks for: the TTL of a grant, how many permits, the slot to try first, the limit; and whether it has
-- missed a heartbeat. Nil if its entry has run out. See live.lua.
local function asked(owner, entry)
  entry = entry or redis.call('HGET', KEYS[5], owner)
  local deadline, ttl, n, want, limit = string.match(entry or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not deadline then return nil end
  local left = deadline - ms
  if left < 1 then return nil end
  return math.min(ttl + 0, left), n + 0, want + 0, cap or limit + 0, left < ttl / 2
end

-- An owner can wish for slots that others have: waiters has <owner -> "deadline_ms ttl_ms limit slot slot…" and, for each slot,
-- >slot -> owner. The limit is 0 where the owner holds the slots at other members, by a lease. Whoever wishes for a slot comes
-- before the line.
local function unwish(owner)
  local wish = ask('HGET', KEYS[5], '<' .. owner)
  if not wish then return end
  local fields = {'<' .. owner}
  for slot in string.gmatch(string.match(wish, '^%d+ %d+ %d+(.*)$'), '%d+') do fields[#fields + 1] = '>' .. slot end
  ask('HDEL', KEYS[5], unpack(fields))
end

-- Removes all of an owner that waits.
local function leave(owner)
  unwish(owner)
  if not drop(owner) then ask('HDEL', KEYS[5], owner) end
end
