-- name: bury_dead
-- Remove a dead letter, or have it delivered again as for the first time.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  group
--       2  number of the message
--       3  1: deliver it again
--       4  operation id
--       5  for how many seconds it is known
--
-- Gives false if there is no such group, 1 if there was that dead letter, else 0; the same operation
-- again has the first answer.
--# parts clock transport operation
local base, name, place = KEYS[1], ARGV[1], place_of(tonumber(ARGV[2]))
local numbers, op, kept = base .. ':n:' .. name, ARGV[4], ARGV[5]
local known = known_answer(base, op)
if known then
  return known
end
if redis.call('EXISTS', base .. ':g:' .. name) == 0 then
  return false
end
if redis.call('ZREM', base .. ':l:' .. name, place) == 0 then
  return note_answer(base, op, kept, 0)
end
if ARGV[3] == '1' then
  local last = tonumber((string.match(redis.call('HGET', numbers, place), '^%d+')))
  redis.call('HSET', numbers, place, digits((math.floor(last / LIFE) + 1) * LIFE) .. ':')
  redis.call('ZADD', base .. ':d:' .. name, digits((read_clock(KEYS[2]))), place)
else
  redis.call('HDEL', numbers, place)
end
return note_answer(base, op, kept, 1)
