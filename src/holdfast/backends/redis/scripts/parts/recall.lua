-- What a repeat is told: see write_records.lua.

-- When the record was written last, and the number of that change.
local function parse_change(meta)
  local updated, number = string.match(meta, '^%d+;%d*;(%d+);(%d+)', OP_BYTES + 1)
  if not updated then
    updated, number = string.match(meta, '^(%d+):%d+:(%d+)$', OP_BYTES + 1)
  end
  return tonumber(updated), tonumber(number)
end

-- All operations that are remembered, each with the number of its change, and the lowest of these.
local function recall(log)
  write_log(log)
  local found = redis.call('HGETALL', log.base .. ':log')
  local known, oldest = {}, nil
  for at = 1, #found, 2 do
    local place = tonumber(found[at])
    if place then
      local number = log.number - (log.number - place) % REMEMBERED
      known[found[at + 1]] = number
      oldest = math.min(oldest or number, number)
    end
  end
  return known, oldest
end

-- 1 + number of the change if a repeat's first try was applied, -1 if that cannot be told.
local function look_back(log, key, op, doubt, seen, meta)
  if not log.known then
    log.known, log.oldest = recall(log)
  end
  local number = log.known[op .. key]
  if number then
    return 1 + number
  end
  -- A first try came after the caller asked. Has the record changed since then, and are
  -- operations forgotten since then?
  if meta and log.oldest and log.oldest > seen + 1 then
    local updated, changed = parse_change(meta)
    if updated >= log.now - doubt and changed > seen then
      return -1
    end
  end
  return nil
end
