-- name: read_record
-- A record as it is kept, and the clock at that moment.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  key
--       …  fields; none: all
--
-- Gives the clock, then what HGETALL or HMGET gives.
--# parts clock
local record = KEYS[1] .. ':r:' .. ARGV[1]
local now = digits((read_clock(KEYS[2])))
if #ARGV == 1 then
  return { now, redis.call('HGETALL', record) }
end
return { now, redis.call('HMGET', record, unpack(ARGV, 2)) }
