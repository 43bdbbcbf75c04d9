-- name: read_record
-- A record as it is kept; who reads it sees whether its time is up.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  key
--       …  fields; none: all
--
-- Gives the clock, then field, value, … of all; or the number of all, and the values asked for,
-- of which the first is ours.
--# parts clock
local record = KEYS[1] .. ':r:' .. ARGV[1]
local now = digits((read_clock(KEYS[2])))
if #ARGV == 1 then
  return { now, redis.call('HGETALL', record) }
end
return { now, redis.call('HLEN', record), redis.call('HMGET', record, '\0', unpack(ARGV, 2)) }
