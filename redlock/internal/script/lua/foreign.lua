local function foreign(key)
  local all
  if redis.call('HLEN', key) < 9 then
    all = redis.call('HGETALL', key)
  else -- perhaps many readers: they are not read then
    all = {'r', redis.call('HGET', key, 'r') or ''}
  end
  --include alien.lua
  return alien
end
