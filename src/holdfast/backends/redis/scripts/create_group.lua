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
--       8  for how many seconds it is known
--       9  1: the caller has named it
--
-- Gives 1 if it is new, else 0; the same operation again has the first answer. Consumers call this
-- whenever they begin, and name none: they write nothing if nothing changes.
--# parts operation
local base, group, op, kept = KEYS[1], KEYS[1] .. ':g:' .. ARGV[1], ARGV[7], ARGV[8]
local known = known_answer(base, op)
if known then
  return known
end
local is = redis.call('HMGET', group, 'subjects', 'timeout', 'most')
if ARGV[9] == '0' and is[1] == ARGV[2] and is[2] == ARGV[3] and is[3] == ARGV[4] then
  return 0
end
redis.call('HSET', group, 'subjects', ARGV[2], 'timeout', ARGV[3], 'most', ARGV[4])
local position = ARGV[5] == '1' and '0' or redis.call('GET', base .. ':sent') or '0'
redis.call('ZADD', base .. ':groups', 0, ARGV[1])
if redis.call('HSETNX', group, 'position', position) == 0 then
  return note_answer(base, op, kept, 0)
end
redis.call('HSET', group, 'op', ARGV[6])
return note_answer(base, op, kept, 1)
