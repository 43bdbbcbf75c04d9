-- name: answer_delivery
-- What a consumer says about a delivery; only the last delivery of a message counts, and only of
-- the group that it came from: another one may have its name by now.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  group
--       2  the operation that made it
--       3  number of the message
--       4  delivery
--       5  -1 done, else in how many µs it is due again
--       6  1: a repeat, so the first try may have been applied
--
-- Gives 1 if it took effect, else 0.
--# parts clock transport
local base, name, place = KEYS[1], ARGV[1], place_of(tonumber(ARGV[3]))
local due, numbers, done = base .. ':d:' .. name, base .. ':n:' .. name, ARGV[5] == '-1'
if (redis.call('HGET', base .. ':g:' .. name, 'op') or '') ~= ARGV[2] then
  return 0
end
local found = redis.call('HGET', numbers, place)
if not found then
  return done and ARGV[6] == '1' and 1 or 0 -- gone, most likely because of the first try
end
if string.match(found, '^%d+') ~= ARGV[4] or not redis.call('ZSCORE', due, place) then
  return 0
end
if done then
  redis.call('ZREM', due, place)
  redis.call('HDEL', numbers, place)
else
  redis.call('ZADD', due, digits(read_clock(KEYS[2]) + ARGV[5]), place)
end
return 1
