-- n free slots below the limit, want first and then upwards. Nil: there are not so many, or so many are taken. It looks at all
-- of them: the first in line that is not given a slot which is free holds up all others.
local function find(want, limit, n, taken)
  if used + n > limit then return nil end
  if n == 1 and want < limit and not taken then return {want} end
  local found, base, size = {}, 0, 16
  while base < limit do
    local names = {}
    for x = base, math.min(base + size, limit) - 1 do names[#names + 1] = (want + x) % limit end
    base, size = base + size, math.min(2 * size, 256)
    local r = redis.call('HMGET', KEYS[1], unpack(names))
    for i, slot in ipairs(names) do
      if not r[i] then
        found[#found + 1] = slot
        if #found == n then return found end
      end
    end
  end
end

-- The next token of a slot, as in draw.lua. A slot has a counter of its own, so that those of the members stay in step.
local function count(slot)
  local bucket = ARGV[1] .. '.' .. slot % 256
  local n = redis.call('HINCRBY', KEYS[2], bucket, '1')
  if n == 1 then
    redis.call('HDEL', KEYS[2], bucket) -- see draw.lua
    local id = string.match(ARGV[#ARGV], '^[^/]*')
    if id ~= '' and redis.call('HGET', KEYS[3], 'id') ~= id then return nil, redis.error_reply('FORGOT marker') end
    n = time[1] * 1000000 + time[2]
    redis.call('HSET', KEYS[2], bucket, text(n))
  end
  if n >= 9007199254740992 then
    redis.call('HINCRBY', KEYS[2], bucket, '-1')
    return false, redis.error_reply('EXHAUSTED tokens: the counter is at 2^53')
  end
  return n
end

-- Writes slots into an owner's record, beside those that it has. Returns the permits of the record.
local function write(owner, slots, tokens, ttl, record)
  local deadline, has, set = ms + ttl, '', {}
  if record then
    local till
    till, has = string.match(record, '^(%d+)(.*)$')
    deadline = math.max(deadline, till + 0)
  end
  for i, slot in ipairs(slots) do
    if has ~= '' then
      set[#set + 1] = '+' .. slot
      set[#set + 1] = ''
    end
    has = has .. ' ' .. slot .. ':' .. text(tokens[i])
    set[#set + 1] = slot
    set[#set + 1] = owner
  end
  used = used + #slots
  local new = not earliest
  if new then
    earliest, over = deadline, 2 * deadline - ms
  elseif over <= deadline then
    outlive(deadline)
  elseif deadline >= earliest then
    redis.call('HSET', KEYS[1], owner, text(deadline) .. has, unpack(set))
    return string.sub(has, 2)
  end
  earliest = math.min(earliest, deadline)
  redis.call('HSET', KEYS[1], owner, text(deadline) .. has, '.', text(earliest), '-', text(over), unpack(set))
  if new and type(redis.pcall('PEXPIRE', KEYS[1], text(2 * (deadline - ms) + 1))) == 'table' then -- see own.lua
    redis.call('DEL', KEYS[1])
    redis.call('PEXPIRE', KEYS[1], '1')
    error('ERR a vote could not be given an end', 0)
  end
  return string.sub(has, 2)
end

-- Gives slots that are free to an owner. Returns its permits; or nil or false and an error, as count.
local function give(owner, slots, ttl, record)
  local tokens = {}
  for i, slot in ipairs(slots) do
    local n, why = count(slot)
    if not n then return n, why end
    tokens[i] = n
  end
  return write(owner, slots, tokens, ttl, record)
end
