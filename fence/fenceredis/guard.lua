-- KEYS[1] has the greatest accepted token. ARGV[1] is the token: decimal, without leading zeros. The words of a command
-- follow, and none for a claim. Tokens are compared as text, because a number of Lua is a double: 2^53+1 would be 2^53.
local function less(a, b) return #a < #b or (#a == #b and a < b) end
local token, top = ARGV[1], redis.call('GET', KEYS[1])
if top and not string.match(top, '^[1-9]%d*$') then return {'damaged'} end
if top and less(token, top) then return {'stale', top} end
if top ~= token then redis.call('SET', KEYS[1], token) end -- before the command: one that fails may have done a part
if #ARGV == 1 then return {'done'} end
local reply = redis.pcall(unpack(ARGV, 2))
if type(reply) == 'table' and reply.err then return {'failed', reply.err} end
return {'done', reply}
