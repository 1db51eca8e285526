-- Writes what a leader proclaims beside its vote, and tells the observers.
--   KEYS[1] lock   KEYS[2] token counters   KEYS[3] marker   KEYS[4] record   KEYS[5] observers
--   ARGV[1] bucket   ARGV[2] owner   ARGV[3] token of its lease   ARGV[4] sequence, from 1
--   ARGV[5] for how long the record is kept, ms   ARGV[6] = and the value, or '': the leader resigns
--   ARGV[#ARGV] marker id, for the inbox alone
-- Returns 0 if the vote is not the owner's: nothing is written, because another may lead since.
-- Else the sequence that is recorded: above ARGV[4] if the owner has proclaimed something later.
--include base.lua
--include push.lua
--include mine.lua
local owner, token, seq, life = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('HEXISTS', KEYS[1], owner) == 0 or not mine(KEYS[1], owner) then return 0 end
-- A record of another owner is that of a former leader: it had the vote before, and never has it again.
local by, record = redis.sha1hex(owner), redis.call('HMGET', KEYS[4], 'o', 's', 'v')
if record[1] == by and tonumber(record[2]) >= tonumber(seq) then
  local left = redis.call('PTTL', KEYS[4]) -- -1: the script was interrupted, and is repeated
  if left == -1 or record[3] and left < tonumber(life) then redis.call('PEXPIRE', KEYS[4], life) end
  return tonumber(record[2])
end
redis.call('DEL', KEYS[4])
if ARGV[6] == '' then
  redis.call('HSET', KEYS[4], 't', token, 's', seq, 'o', by)
else
  redis.call('HSET', KEYS[4], 't', token, 's', seq, 'o', by, 'v', string.sub(ARGV[6], 2))
end
redis.call('PEXPIRE', KEYS[4], life)
--include observers.lua
tell(function(watch) push(watch, 'e ' .. watch .. ' ' .. token .. ' ' .. seq) end)
return tonumber(seq)
