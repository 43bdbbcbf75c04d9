-- name: page_records
-- The next records in byte order of their keys, as they are kept.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  lowest key, as ZRANGEBYLEX takes it
--       2  highest key
--       3  how many to look at
--       …  fields; none: all
--
-- Gives the clock, then for each its key and what read_record gives after the clock.
--# parts clock
local base = KEYS[1]
local page = { digits((read_clock(KEYS[2]))) }
for _, key in ipairs(redis.call('ZRANGEBYLEX', base .. ':keys', ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])) do
  local record = base .. ':r:' .. key
  page[#page + 1] = key
  if #ARGV == 3 then
    page[#page + 1] = redis.call('HGETALL', record)
  else
    page[#page + 1] = redis.call('HLEN', record)
    page[#page + 1] = redis.call('HMGET', record, '\0', unpack(ARGV, 4))
  end
end
return page
