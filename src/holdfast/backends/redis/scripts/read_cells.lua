-- name: read_cells
-- Several cells as they are at one moment.
--
-- KEYS  1  base of the namespace
-- ARGV  …  names
--
-- Gives for each what HMGET gives: value (false if there is none), version, time, commit.
local found = {}
for at, name in ipairs(ARGV) do
  found[at] = redis.call('HMGET', KEYS[1] .. ':c:' .. name, 'p', 'v', 't', 'i')
end
return found
