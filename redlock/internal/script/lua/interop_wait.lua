-- In front of wait with Config.Interop. While the lock is left to others a request is registered only.
--   ARGV[5] '1': others have freed the lock by the word of their message, so that their turn is over
--include lib.lua
--include interop.lua
do
  if ARGV[5] == '1' then redis.call('DEL', KEYS[7]) end
  local left = turn()
  if left and redis.call('EXISTS', KEYS[1]) == 0 then
    register(ARGV[2], ARGV[3], tonumber(ARGV[4]))
    return {-left, now, '-'}
  end
end
--include wait.lua
