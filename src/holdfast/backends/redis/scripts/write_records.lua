-- name: write_records
-- Writes of records, one after the other, by the table in facets/records.py. Each call out of
-- Lua costs 4 µs, so what cannot have changed is not touched, and what is one for all writes is
-- called once.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  …  the writes, each a list in MessagePack:
--       1  key
--       2  operation id
--       3  time to live: -1 stays, 0 none, else microseconds from now
--       4  true: other fields go
--       5  true: the record must be there
--       6  in a repeat, how many µs ago the first try can have been applied at most; else -1
--       7  the number of a change that was there before the caller asked
--       8  the fields that are set, each followed by its value
--       9  the fields that go
--      10  the fields that are stamped, each followed by how many µs from now
--      11  the fields that are expected
--      12  the value of each of them, false if it must be absent
--
-- Gives for each 1 + the number of the change if it was applied, 0 if refused, -1 for a repeat
-- that cannot tell; an error if it came at the first touch of the record, which is then unchanged.
--# parts clock index record
local MOST = 5000 -- words at a time: what unpack takes is limited
local log = open_log(KEYS[1], KEYS[2])
local base, now = log.base, log.now

-- 1 + number of the change if a repeat's first try was applied, -1 if that cannot be told.
local function look_back(key, op, doubt, seen, meta)
  write_log(log)
  local known = redis.call('ZSCORE', base .. ':ops', op .. key)
  if known then
    return 1 + known
  end
  -- A first try came after the caller asked. Has the record changed since then, and are
  -- operations forgotten since then?
  if meta and meta.updated >= now - doubt and meta.number > seen then
    local oldest = redis.call('ZRANGE', base .. ':ops', 0, 0, 'WITHSCORES')[2]
    if oldest and tonumber(oldest) > seen + 1 then
      return -1
    end
  end
  return nil
end

-- Sets what is ours and the fields; the error if the server refuses, and then nothing is set.
local function set_fields(record, meta, set)
  local added = redis.pcall('HSET', record, META, meta, unpack(set, 1, math.min(MOST, #set)))
  if type(added) == 'table' then
    return added
  end
  for from = MOST + 1, #set, MOST do
    redis.call('HSET', record, unpack(set, from, math.min(from + MOST - 1, #set)))
  end
  return nil
end

local function remove_fields(record, fields)
  for from = 1, #fields, MOST do
    redis.call('HDEL', record, unpack(fields, from, math.min(from + MOST - 1, #fields)))
  end
end

local function write(
  key, op, ttl, replace, must_exist, doubt, seen, set, gone, stamped, fields, values
)
  local record = base .. ':r:' .. key
  local found = redis.pcall('HMGET', record, META, unpack(fields, 1, math.min(MOST, #fields)))
  if found.err then
    return found
  end
  for from = MOST + 1, #fields, MOST do
    local last = math.min(from + MOST - 1, #fields)
    for _, value in ipairs(redis.call('HMGET', record, unpack(fields, from, last))) do
      found[#found + 1] = value
    end
  end
  local meta = parse_meta(found[1])
  if meta and meta.op == op then
    return 1 + meta.number
  end
  local known = doubt >= 0 and look_back(key, op, doubt, seen, meta)
  if known then
    return known
  end
  local live = meta ~= nil and (meta.expires == 0 or meta.expires > now)
  if must_exist and not live then
    return 0
  end
  for at = 1, #fields do
    if (live and found[1 + at]) ~= values[at] then
      return 0
    end
  end

  local sets = #set > 0 or #stamped > 0
  local afresh = replace or not live
  if not sets then
    if not live then
      return 1 -- there was nothing, and there is nothing
    end
    if not afresh then
      remove_fields(record, gone)
    end
    if afresh or redis.call('HLEN', record) == 1 then
      local number = log_change(log, key, op)
      bury(log, record, key, op, number)
      return 1 + number
    end
  end

  local before = live and meta.expires or 0
  local expires = before
  if ttl >= 0 then
    expires = ttl > 0 and now + ttl or 0
  end
  for at = 1, #stamped, 2 do
    set[#set + 1] = stamped[at]
    set[#set + 1] = digits(math.floor((now + stamped[at + 1]) / 1000))
  end
  local ours = format_meta(op, now, expires, log.number + 1)
  local refused = set_fields(record, ours, set)
  if refused then
    return refused
  end
  local number = log_change(log, key, op)
  if not afresh then
    if sets then
      remove_fields(record, gone)
    end
  elseif meta and redis.call('HLEN', record) > 1 + #set / 2 then
    -- Seldom: mostly a record is put with the fields that it had.
    redis.call('DEL', record)
    set_fields(record, ours, set)
  end
  local new = not live and redis.call('ZADD', base .. ':keys', 0, key) == 1
  if expires > 0 then
    if afresh or expires ~= before then
      forget_at(record, expires, log.offset)
      redis.call('ZADD', base .. ':due', digits(expires), key)
    end
  elseif before > 0 or (not live and not (new and meta == nil)) then
    redis.call('PERSIST', record)
    redis.call('ZREM', base .. ':due', key)
  end
  update_indexes(log.indexes, base, record, key, true)
  return 1 + number
end

local answers = {}
for at, packed in ipairs(ARGV) do
  answers[at] = write(unpack(cmsgpack.unpack(packed), 1, 12))
end
tidy(log)
return answers
