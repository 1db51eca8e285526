-- Put in front of what restores. waits reports by a look whether the member waits to be restored: it has the marking of ARGV[1], and
-- its memory is the one that was marked. The copy that a replica got may have the marking, and lack counters.
local function waits(r)
  if r[1] ~= ARGV[1] or r[2] ~= 'g' or r[4] > 0 then return false end
  return r[8] ~= '' and string.find(r[9], 'role:master', 1, true) and string.find(r[9], 'master_replid:' .. r[8], 1, true)
end
