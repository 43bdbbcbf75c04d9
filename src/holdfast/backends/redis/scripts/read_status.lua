-- name: read_status
-- How far a group is, as much of it as one look may take.
--
-- KEYS  1  base of the namespace
-- ARGV  1  group
--       2  number of the message above which to count those that wait; empty: the group's position
--
-- Gives false if there is no such group. Else how many of those that were looked at wait, when the
-- first of them was published (or false); how many are delivered; how many are dead; up to which
-- number was looked, 1 if there may be more.
--# parts clock transport
local base, name = KEYS[1], ARGV[1]
local group = read_group(base, name)
if not group then
  return false
end
local waiting, oldest = 0, false
local upto, more = walk(base, tonumber(ARGV[2]) or group.position, PAGE, function(_, fields)
  if group.wants(fields[4]) then
    waiting = waiting + 1
    oldest = oldest or fields[6]
  end
end)
local delivered = redis.call('ZCARD', base .. ':d:' .. name)
local dead = redis.call('ZCARD', base .. ':l:' .. name)
return { waiting, oldest, delivered, dead, digits(upto), more and 1 or 0 }
