-- name: delete_group
-- Remove a group with its deliveries and dead letters.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name
--       2  operation id
--
-- Gives 1 if it was there, also if it was so for an earlier try of the same operation; else 0.
--# parts ending
local base, name, op = KEYS[1], ARGV[1], ARGV[2]
local known = redis.call('GET', ending_of(base, op))
if known then
  return tonumber(known)
end
for _, kind in ipairs({ ':g:', ':d:', ':n:', ':l:' }) do
  redis.call('UNLINK', base .. kind .. name)
end
return note_ending(base, op, redis.call('ZREM', base .. ':groups', name))
