-- In a long line an entry lives longer, so its waiter may send heartbeats less often: 1000 of them come in a lifetime that
-- was asked for, however many wait. lives is the lifetime in ms, where it is longer, and else '-'. The line is counted with
-- what waiters has of no waiter (lib.lua), at no cost for its length.
local lives, waiting = '-', redis.call('HLEN', KEYS[5])
if waiting > 333 then
  entry = entry + math.floor(entry * math.min(waiting, 3000) / 1000)
  lives = entry
end
