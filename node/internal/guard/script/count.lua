-- Put in front where counters are raised. raiseTo raises the counters of a key to those of ARGV from first on, field and counter in
-- turn, and none of them to less than floor. A stored limit has no floor.
local function raiseTo(key, first, floor)
  for from = first, #ARGV, 1000 do -- unpack has a bound
    local fields, new = {}, {}
    for i = from, math.min(from + 999, #ARGV), 2 do fields[#fields + 1] = ARGV[i] end
    local old = redis.call('HMGET', key, unpack(fields))
    for i, field in ipairs(fields) do
      local n = ARGV[from + 2 * i - 1]
      if n + 0 < floor and string.sub(field, 1, 6) ~= 'limit:' then n = string.format('%.0f', floor) end
      if (old[i] or 0) + 0 < n + 0 then
        new[#new + 1] = field
        new[#new + 1] = n
      end
    end
    if #new > 0 then redis.call('HSET', key, unpack(new)) end
  end
end
