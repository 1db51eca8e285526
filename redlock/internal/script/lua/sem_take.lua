-- Takes from an owner all slots of its record but those that are kept. Returns those that it took, and the record that is left.
-- The key stays, and has its end, for those that are served then: see clear.
local function take(owner, record, kept)
  local taken, fields, left, padded = {}, {}, {}, false
  for slot, token in string.gmatch(record, ' (%d+):(%d+)') do
    if kept and kept[slot] then
      left[#left + 1] = slot .. ':' .. token
      if #left == 1 and padded then fields[#fields + 1] = '+' .. slot end
    else
      taken[#taken + 1] = slot
      fields[#fields + 1] = slot
      if padded then fields[#fields + 1] = '+' .. slot end
    end
    padded = true
  end
  if #taken == 0 then return taken, record end
  used = used - #taken
  if #left > 0 then -- the record first: a slot is another's only after its owner has lost it. An interruption leaves it to sweep
    record = string.match(record, '^%d+ ') .. table.concat(left, ' ')
    redis.call('HSET', KEYS[1], owner, record, '.', '0')
    redis.call('HDEL', KEYS[1], unpack(fields))
    redis.call('HSET', KEYS[1], '.', text(earliest))
    return taken, record
  end
  redis.call('HDEL', KEYS[1], owner, unpack(fields))
  return taken
end

-- Removes the key where no slot is taken.
local function clear()
  if used <= 0 and earliest then
    redis.call('DEL', KEYS[1])
    earliest = nil
  end
end
