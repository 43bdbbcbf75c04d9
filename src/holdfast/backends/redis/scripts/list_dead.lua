-- name: list_dead
-- Dead letters of a group, in the order of their messages.
--
-- KEYS  1  base of the namespace
-- ARGV  1  group
--       2  number of the message above which
--       3  how many at most
--
-- Gives false if there is no such group. Else for each: number, deliveries, when it died, id,
-- subject, time, payload, trace id.
--# parts clock transport
local base, name = KEYS[1], ARGV[1]
if redis.call('EXISTS', base .. ':g:' .. name) == 0 then
  return false
end
local above = '(' .. place_of(tonumber(ARGV[2]))
local places = redis.call('ZRANGEBYLEX', base .. ':l:' .. name, above, '+', 'LIMIT', 0, ARGV[3])
local reply = {}
for _, place in ipairs(places) do
  local delivery, died = string.match(redis.call('HGET', base .. ':n:' .. name, place), '^(%d+):(%d+)$')
  local fields = read_message(base, tonumber(place))
  if fields then
    reply[#reply + 1] = digits(tonumber(place))
    reply[#reply + 1] = delivery
    reply[#reply + 1] = died
    tell(reply, fields)
  end
end
return reply
