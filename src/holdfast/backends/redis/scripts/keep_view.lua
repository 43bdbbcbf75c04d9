-- name: keep_view
-- Keep a view with its run, unless a later one is there.
--
-- KEYS  1  base of the namespace
-- ARGV  1  run id
--       2  view
--       3  generation of the run
--       4  the number of the last event in it
--       5  what it is
--
-- Gives 1, or 0 when there is no such run.
local head, view = KEYS[1] .. ':h:' .. ARGV[1], ARGV[2]
local found = redis.call('HMGET', head, 'g', 's' .. view)
if found[1] ~= ARGV[3] then
  return 0
end
if tonumber(ARGV[4]) >= tonumber(found[2] or 0) then
  redis.call('HSET', head, 's' .. view, ARGV[4], 'p' .. view, ARGV[5])
end
return 1
