-- name: purge_messages
-- Remove old messages that every group is past, and that none still has.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  how many µs old
--       2  number of the message above which to look
--       3  how many at most
--
-- Gives how many, and up to which number it looked if there may be more, else false.
--# parts clock transport
local base, limit = KEYS[1], tonumber(ARGV[3])
local cutoff = read_clock(KEYS[2]) - ARGV[1]
local groups = redis.call('ZRANGE', base .. ':groups', 0, -1)
local passed = math.huge
for _, name in ipairs(groups) do
  passed = math.min(passed, tonumber(redis.call('HGET', base .. ':g:' .. name, 'position')))
end

local function is_needed(number)
  for _, name in ipairs(groups) do
    if redis.call('HEXISTS', base .. ':n:' .. name, place_of(number)) == 1 then
      return true
    end
  end
  return false
end

local done, gone = false, 0
local upto, more = walk(base, tonumber(ARGV[2]), PAGE, function(number, fields)
  -- The log is in the order of time; where a clock was set back, they go a little later.
  done = number > passed or tonumber(fields[6]) >= cutoff
  if not done and not is_needed(number) then
    gone = gone + redis.call('XDEL', base .. ':messages', digits(number) .. '-0')
  end
  return done or gone == limit
end)
return { gone, more and not done and digits(upto) }
