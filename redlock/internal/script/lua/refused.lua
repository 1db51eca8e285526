-- What a script that ends by the error would have replied: Redis 7 gives its text, those before it and with it the
-- position. Whatever is asked for again finds what it has done: a release gives its own vote up last.
local text = type(said) == 'table' and said.err or tostring(said)
if string.find(text, 'hash to the same slot', 1, true) then
  text = 'TRYAGAIN alone'
elseif string.find(text, 'non local key', 1, true) then
  text = 'TRYAGAIN the slot is not served here'
elseif string.find(text, 'slot not served', 1, true) or string.find(text, 'the cluster is down', 1, true) then
  text = 'TRYAGAIN nothing is served here now'
elseif not string.match(text, '^%u+ ') then
  text = 'ERR Error running script (call to batch): ' .. text
end
said = {err = text}
