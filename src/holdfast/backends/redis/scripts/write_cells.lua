-- name: write_cells
-- Writes of cells, all or none, by the rule in facets/cells.py.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  in a repeat, how many µs ago the first try can have been applied at most; else -1
--       …  for each: name, expected version (-1 any, 0 absent), v (value) or d (delete), value,
--          operation id, 1: it may have been used before
--
-- Gives for each the version n if it was applied, -1 - n if it was refused and n is there.
-- Gives false in a repeat that cannot tell.
--# parts clock
local OP_BYTES = 16
local REMEMBERED = 100 -- operations of a cell, up to
local TRIM_EVERY = 10  -- more
local base, doubt = KEYS[1], tonumber(ARGV[1])
local now = read_clock(KEYS[2])

-- The version that the operation made, nil if it is not known; and whether that is certain.
local function recall(name, op)
  local remembered = redis.call('LRANGE', base .. ':o:' .. name, 0, -1)
  for _, entry in ipairs(remembered) do
    if string.sub(entry, 1, OP_BYTES) == op then
      return tonumber((string.match(entry, '^(%d+):', OP_BYTES + 1))), true
    end
  end
  if #remembered < REMEMBERED or doubt < 0 then
    return nil, true
  end
  -- Some are forgotten: are all from the time of the first try still there?
  return nil, tonumber((string.match(remembered[#remembered], ':(%d+)$'))) < now - doubt
end

local known = {}
for at = 2, #ARGV, 6 do
  if doubt >= 0 or ARGV[at + 5] == '1' then
    local certain
    known[at], certain = recall(ARGV[at], ARGV[at + 4])
    if not certain then
      return false
    end
  end
end

local function remember(name, op, version)
  local operations = base .. ':o:' .. name
  local length = redis.call('LPUSH', operations, op .. digits(version) .. ':' .. digits(now))
  if length >= REMEMBERED + TRIM_EVERY then
    redis.call('LTRIM', operations, 0, REMEMBERED - 1)
  end
end

local function write(at)
  local name, expected, deletes = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2] == 'd'
  local cell = base .. ':c:' .. name
  local found = redis.call('HMGET', cell, 'v', 'p', 'o')
  local counter = tonumber(found[1] or 0)
  local live = found[2] and counter or 0
  if found[3] == ARGV[at + 4] then -- a first try that comes after its repeat
    return counter
  end
  if (expected >= 0 and expected ~= live) or (deletes and live == 0) then
    return -1 - live
  end
  local commit = redis.call('INCR', base .. ':commit')
  local version = deletes and counter or counter + 1
  local own = { 'v', digits(version), 't', digits(now), 'i', digits(commit), 'o', ARGV[at + 4] }
  if deletes then
    redis.call('HSET', cell, unpack(own))
    redis.call('HDEL', cell, 'p')
    redis.call('ZREM', base .. ':cells', name)
  else
    redis.call('HSET', cell, 'p', ARGV[at + 3], unpack(own))
    if live == 0 then
      redis.call('ZADD', base .. ':cells', 0, name)
    end
  end
  remember(name, ARGV[at + 4], version)
  return version
end

local answers = {}
for at = 2, #ARGV, 6 do
  answers[#answers + 1] = known[at] or write(at)
end
return answers
