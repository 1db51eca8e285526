-- Takes the vote from whoever has it, or from the owner that is named. Where that one is in the middle of a hand-over,
-- another has the vote already (mine.lua), and keeps it.
do
  local owners, from = redis.call('HKEYS', KEYS[1]), nil
  if #owners == 0 then return 0 end
  if ARGV[2] ~= '' then
    for _, owner in ipairs(owners) do
      if redis.sha1hex(owner) == ARGV[2] then from = owner end
    end
    if not from then return 0 end
    if #owners > 1 then return redis.call('HDEL', KEYS[1], from) end
  end
  redis.call('DEL', KEYS[1])
end
