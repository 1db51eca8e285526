-- A script reads the time once, before it grants anything, and dates by that all that it grants: from Redis 7.2 on a TTL
-- counts from the beginning of the script, so that a later reading would promise more than the key gives.
local time = redis.call('TIME')
