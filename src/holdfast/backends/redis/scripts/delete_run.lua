-- name: delete_run
-- Put a run out of sight, and remove some of what is out of sight, the last events first.
--
-- KEYS  1  base of the namespace
-- ARGV  1  run id
--       2  how many events
--       3  generation of the run
--       4  where it must be, or empty
--
-- Gives 1 when nothing is left to remove, 2 when the run is elsewhere.
local base, run, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
local head = redis.call('HMGET', base .. ':h:' .. run, 'n', 'g')
if head[1] and head[2] == ARGV[3] then
  if ARGV[4] ~= '' and ARGV[4] ~= head[1] then
    return 2
  end
  -- Not there if it was evicted: the run can go all the same.
  if redis.call('EXISTS', base .. ':v:' .. run) == 1 then
    redis.call('RENAME', base .. ':v:' .. run, base .. ':w:' .. head[2])
    redis.call('HSET', base .. ':gone', head[2], head[1])
  end
  redis.call('UNLINK', base .. ':h:' .. run, base .. ':k:' .. run)
  redis.call('ZREM', base .. ':runs', run)
end
local gone = redis.call('HGETALL', base .. ':gone')
for at = 1, #gone, 2 do
  local generation, last = gone[at], tonumber(gone[at + 1])
  local events = base .. ':w:' .. generation
  local first = math.max(last - limit + 1, 1)
  for seq = first, last do
    local field = string.format('%.0f', seq)
    local event = redis.call('HGET', events, field)
    if event then
      -- Of an event that cannot be read the entry in the feed stays, and tells nothing.
      local read, values = pcall(cmsgpack.unpack, event)
      if read and type(values) == 'table' and values[8] then
        redis.call('XDEL', base .. ':events', values[8] .. '-0')
      end
      redis.call('HDEL', events, field)
    end
  end
  limit = limit - (last - first + 1)
  if first > 1 then
    redis.call('HSET', base .. ':gone', generation, first - 1)
    return 0
  end
  redis.call('HDEL', base .. ':gone', generation)
  if limit <= 0 then
    return at + 2 > #gone and 1 or 0
  end
end
return 1
