-- The server's clock in microseconds.
-- Numbers are doubles: exact up to 2^53 µs, which is the year 2255.
local function server_now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The store's clock, and by how much it is ahead of the server's.
local function read_clock(clock)
  local offset = tonumber(redis.call('GET', clock) or 0)
  return server_now() + offset, offset
end

-- All digits of a whole number: tostring would give 1.7e+15.
local function digits(number)
  return string.format('%d', number)
end
