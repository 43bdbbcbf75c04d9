-- name: create_group
-- Make a group, or give it new settings.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name
--       2  subjects, between blanks
--       3  after how many µs without an answer a message is delivered again
--       4  how often a message is delivered at most
--       5  1: a new group begins with the oldest message that is kept; 0: with the next one
--       6  what tells a new group from others that have had its name
--       7  operation id
--
-- Gives 1 if it is new, also if the same operation made it before; else 0. Consumers call this
-- whenever they begin: only what makes a group is noted.
--# parts operation
local base, group, op = KEYS[1], KEYS[1] .. ':g:' .. ARGV[1], ARGV[7]
if known_answer(base, op) == 1 then
  return 1
end
redis.call('HSET', group, 'subjects', ARGV[2], 'timeout', ARGV[3], 'most', ARGV[4])
local position = ARGV[5] == '1' and '0' or redis.call('GET', base .. ':sent') or '0'
redis.call('ZADD', base .. ':groups', 0, ARGV[1])
if redis.call('HSETNX', group, 'position', position) == 0 then
  return 0
end
redis.call('HSET', group, 'op', ARGV[6])
return note_answer(base, op, 1)
