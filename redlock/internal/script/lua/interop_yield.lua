-- In front of yield with Config.Interop: a vote that makes no majority is left to others where they wait.
--include lib.lua
--include interop.lua
do
  local waiting = others()
  if waiting > 0 and redis.call('HGET', KEYS[1], ARGV[2]) == ARGV[3] then
    register(ARGV[2], ARGV[4], tonumber(ARGV[5]))
    redis.call('HDEL', KEYS[1], ARGV[2])
    leave(waiting)
    return {0, now}
  end
end
--include yield.lua
