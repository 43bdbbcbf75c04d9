-- name: keep_snapshot
-- Keep a snapshot with its run, unless a later one is there.
--
-- KEYS  1  base of the namespace
-- ARGV  1  run id
--       2  generation of the run
--       3  the number of the last event in it
--       4  the snapshot
--
-- Gives 1, or 0 when there is no such run.
local head = KEYS[1] .. ':h:' .. ARGV[1]
local found = redis.call('HMGET', head, 'g', 's')
if found[1] ~= ARGV[2] then
  return 0
end
if tonumber(ARGV[3]) > tonumber(found[2] or 0) then
  redis.call('HSET', head, 's', ARGV[3], 'p', ARGV[4])
end
return 1
