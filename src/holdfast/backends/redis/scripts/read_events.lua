-- name: read_events
-- A run's next events.
--
-- KEYS  1  base of the namespace
-- ARGV  1  run id
--       2  number above which
--       3  how many
--       4  generation of the run, or 0 for any
--
-- Gives the number and the event, in turn.
local base, run = KEYS[1], ARGV[1]
local head = redis.call('HMGET', base .. ':h:' .. run, 'n', 'g')
if not head[1] or (ARGV[4] ~= '0' and ARGV[4] ~= head[2]) then
  return {}
end
local numbers = {}
for number = ARGV[2] + 1, math.min(ARGV[2] + ARGV[3], tonumber(head[1])) do
  numbers[#numbers + 1] = string.format('%.0f', number)
end
if #numbers == 0 then
  return {}
end
local events = redis.call('HMGET', base .. ':v:' .. run, unpack(numbers))
local found = {}
for at, event in ipairs(events) do
  found[2 * at - 1], found[2 * at] = numbers[at], event
end
return found
