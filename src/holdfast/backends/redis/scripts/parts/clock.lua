-- The store's clock in microseconds, and by how much it is ahead of the server's.
-- Numbers are doubles: exact up to 2^53 µs, which is the year 2255.
local function read_clock(clock)
  local time = redis.call('TIME')
  local offset = tonumber(redis.call('GET', clock) or 0)
  return time[1] * 1000000 + time[2] + offset, offset
end

-- All digits of a whole number: tostring would give 1.7e+15.
local function digits(number)
  return string.format('%.0f', number)
end
