-- Whether what is under the name of the lock is other data, which has a TTL by chance. All fields of a lock are owners: a client,
-- 26 of A to Z and 2 to 7, or Redisson's UUID, and a number. All values are tokens, or Redisson's counts. If readers have it,
-- it has the field r of rw.lua. Of what is in all, this says: alien. Each waiter asks it: so it is no function, and short.
local alien, find = false, string.find
for i = 1, #all, 2 do
  local name, value = all[i], all[i + 1]
  if name == 'r' then
    alien = not find(value, '^%d+ %d+ ')
    break
  end
  local ours = string.byte(name, 27) == 58 and find(name, '^[A-Z2-7]+:%-?%d+$') -- 58 is the colon
  local theirs = not ours and string.byte(name, 37) == 58 and find(name, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$')
  if not (ours or theirs) or not find(value, '^%d+$') then
    alien = true
    break
  end
end
