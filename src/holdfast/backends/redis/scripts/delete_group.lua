-- name: delete_group
-- Remove a group with its deliveries and dead letters.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name
--       2  operation id
--       3  for how many seconds it is known
--
-- Gives 1 if it was there, else 0; the same operation again has the first answer.
--# parts operation
local base, name, op = KEYS[1], ARGV[1], ARGV[2]
local known = known_answer(base, op)
if known then
  return known
end
for _, kind in ipairs({ ':g:', ':d:', ':n:', ':l:' }) do
  redis.call('UNLINK', base .. kind .. name)
end
return note_answer(base, op, ARGV[3], redis.call('ZREM', base .. ':groups', name))
