-- Takes the vote from whoever has it, or from one owner alone, and hands it over as a release does.
--   ARGV[2] '' or the SHA-1 of the owner that it is to be taken from. Its name is never used again, so
--           that who has the vote meanwhile keeps it, however late this is executed
--   ARGV[3] the longest lease that may be held, ms: who lost the vote is refused a re-join for as long (bury.lua)
-- Returns 1 if the vote was taken, 0 if there was none, or not of that owner. Errors: WRONGTYPE and
-- FOREIGN no ttl or no lock, because what is no lock is not ours to delete.
--include lib.lua
redis.call('HLEN', KEYS[1])
if redis.call('PTTL', KEYS[1]) == -1 then return redis.error_reply('FOREIGN no ttl') end
--include foreign.lua
if foreign(KEYS[1]) then return redis.error_reply('FOREIGN no lock') end
--include bury.lua
--include rob.lua
if tag == '!' then return 1 end
if hand('') == nil then return redis.error_reply('FORGOT marker') end
return 1
