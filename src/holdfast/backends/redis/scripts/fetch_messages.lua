-- name: fetch_messages
-- Messages for a consumer: those that are due again, then new ones.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  group
--       2  consumer
--       3  how many at most
--
-- Gives false if there is no such group. Else 1 if there may be more, in how many µs something
-- is due (or false), which operation made the group; then for each: number, delivery, id, subject,
-- time, payload, trace id.
--# parts clock transport
local MORE, DUE = 1, 2
local base, name, consumer, limit = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local due, numbers = base .. ':d:' .. name, base .. ':n:' .. name
local group = read_group(base, name)
if not group then
  return false
end
local now = read_clock(KEYS[2])
local reply, found = { 0, false, group.op }, 0
local again = digits(now + group.timeout)

local function deliver(number, delivery, fields)
  local place = place_of(number)
  redis.call('ZADD', due, again, place)
  redis.call('HSET', numbers, place, digits(delivery) .. ':' .. consumer)
  reply[#reply + 1] = digits(number)
  reply[#reply + 1] = delivery
  tell(reply, fields)
  found = found + 1
end

-- The message comes no more: it was delivered too often, or somebody has removed it.
local function give_up(place, delivery, fields)
  redis.call('ZREM', due, place)
  if fields then
    redis.call('ZADD', base .. ':l:' .. name, 0, place)
    redis.call('HSET', numbers, place, digits(delivery) .. ':' .. digits(now))
  else
    redis.call('HDEL', numbers, place)
  end
  reply[MORE] = 1
end

for _, place in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', digits(now), 'LIMIT', 0, limit)) do
  local delivery = tonumber((string.match(redis.call('HGET', numbers, place), '^%d+')))
  local fields = read_message(base, tonumber(place))
  if fields and delivery % LIFE < group.most then
    deliver(tonumber(place), delivery + 1, fields)
  else
    give_up(place, delivery, fields)
  end
end

if found < limit then
  local position, more = walk(base, group.position, limit - found, function(number, fields)
    if group.wants(fields[4]) then
      deliver(number, 1, fields)
    end
    return found == limit
  end)
  if more then
    reply[MORE] = 1
  end
  if position > group.position then
    redis.call('HSET', base .. ':g:' .. name, 'position', digits(position))
  end
end

local next_due = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
if next_due[2] then
  reply[DUE] = digits(tonumber(next_due[2]) - now)
end
return reply
