-- name: delete_group
-- Remove a group with its deliveries and dead letters.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name
--       2  1: a repeat, so the first try may have been applied
--
-- Gives 1 if it was there, else 0.
local base, name = KEYS[1], ARGV[1]
for _, kind in ipairs({ ':g:', ':d:', ':n:', ':l:' }) do
  redis.call('UNLINK', base .. kind .. name)
end
return math.max(redis.call('ZREM', base .. ':groups', name), tonumber(ARGV[2]))
