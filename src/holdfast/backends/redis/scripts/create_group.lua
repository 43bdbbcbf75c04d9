-- name: create_group
-- Make a group, or give it new settings.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name
--       2  subjects, between blanks
--       3  after how many µs without an answer a message is delivered again
--       4  how often a message is delivered at most
--       5  1: a new group begins with the oldest message that is kept; 0: with the next one
--       6  operation id
--
-- Gives 1 if it is new, also if it is so by an earlier try of the same operation; else 0.
local base, group = KEYS[1], KEYS[1] .. ':g:' .. ARGV[1]
redis.call('HSET', group, 'subjects', ARGV[2], 'timeout', ARGV[3], 'most', ARGV[4])
local position = ARGV[5] == '1' and '0' or redis.call('GET', base .. ':sent') or '0'
redis.call('ZADD', base .. ':groups', 0, ARGV[1])
if redis.call('HSETNX', group, 'position', position) == 1 then
  redis.call('HSET', group, 'op', ARGV[6])
  return 1
end
return redis.call('HGET', group, 'op') == ARGV[6] and 1 or 0
