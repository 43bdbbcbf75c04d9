-- name: write_records
-- Writes of records, one after the other, by the table in facets/records.py. Each call out of
-- Lua costs 2 to 4 µs, so what cannot have changed is not touched, and what is one for all writes
-- is called once. The server runs all of the text with each call, and a function costs 0.3 µs to
-- make: what few writes need is made inside of `seldom`.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  …  the writes, each a row of values in MessagePack:
--       1  key
--       2  operation id
--       3  time to live: -1 stays, 0 none, else microseconds from now
--       4  true: other fields go
--       5  nil; or of a usual put all its fields, packed as packed.lua has them; or a list of what
--          not every write has, nil for each that it has not:
--          1  true: the record must be there
--          2  the fields that are expected
--          3  the value of each of them, false if it must be absent
--          4  the fields that are stamped, each followed by how many µs from now
--          5  the fields that go
--          6  in a repeat, how many µs ago the first try can have been applied at most
--          7  and the number of a change that was there before the caller asked
--          8  more of what follows
--       …  the fields that are set, each followed by its value: 5,000 words at most
--
-- Gives for each 1 + the number of the change if it was applied, 0 if refused, -1 for a repeat
-- that cannot tell; an error if it came at the first touch of the record, which is then unchanged.
--# parts meta log
local MOST = 5000 -- words at a time: what unpack takes is limited
local TIDY_EVERY, PURGE = 16, 32 -- so that nobody has to purge who writes

local made
local function seldom()
  if made then
    return made
  end
  --# parts packed index burial recall words
  made = {
    bury = bury, list_indexes = list_indexes, look_back = look_back,
    parse_change = parse_change, read_more = read_more, remove_due = remove_due,
    remove_fields = remove_fields, set_more = set_more, unpack_fields = unpack_fields, update_indexes = update_indexes,
  }
  return made
end

local function write(key, op, ttl, replace, few, ...)
  local must_exist, fields, values, stamped, gone, doubt, seen, more, packed
  if type(few) == 'string' then
    packed = few
  elseif few then
    must_exist, fields, values, stamped, gone, doubt, seen, more = unpack(few, 1, 8)
  end
  local base, now = log.base, log.now
  local record = base .. ':r:' .. key
  local meta, found
  if fields then
    found = redis.pcall('HMGET', record, META, unpack(fields, 1, math.min(MOST, #fields)))
    meta = found.err and found or found[1]
  else
    meta = redis.pcall('HGET', record, META)
  end
  if type(meta) == 'table' then
    return meta
  end
  local before, count, live = 0, 0, false
  if meta then
    if string.sub(meta, 1, OP_BYTES) == op then
      local _, number = seldom().parse_change(meta)
      return 1 + number
    end
    before, count = parse_meta(meta)
    live = before == 0 or before > now
    before = live and before or 0
  end
  local known = doubt and seldom().look_back(log, key, op, doubt, seen, meta)
  if known then
    return known
  end
  if must_exist and not live then
    return 0
  end
  local words_there, there -- of a packed record whose fields count
  if live and count == 0 and not replace then
    words_there, there = seldom().unpack_fields(meta)
  end
  if fields then
    if #fields > MOST then
      seldom().read_more(record, fields, found)
    end
    for at = 1, #fields do
      local value = live and found[1 + at]
      if there then
        value = there[fields[at]] or false
      end
      if value ~= values[at] then
        return 0
      end
    end
  end

  local words = select('#', ...) + (stamped and #stamped or 0) + (more and #more or 0)
  local afresh = replace or not live
  if there then -- from now on they are fields of the hash
    local spread = redis.pcall('HSET', record, unpack(words_there))
    if type(spread) == 'table' then
      return spread
    end
  end
  if words == 0 and not packed then
    if not live then
      return 1 -- there was nothing, and there is nothing
    end
    if gone and not replace then
      seldom().remove_fields(record, gone)
    end
    if replace or (gone and redis.call('HLEN', record) == 1) then
      local number = log_change(log, key, op)
      seldom().bury(log, record, key, op, number)
      return 1 + number
    end
  end

  local expires = before
  if ttl >= 0 then
    expires = ttl > 0 and now + ttl or 0
  end
  -- How many fields the hash has is known of a put.
  local ours = format_meta(log, op, expires, afresh and words / 2 or '', log.number + 1)
  if packed then
    ours = ours .. ';' .. packed
  end
  local added = redis.pcall('HSET', record, META, ours, ...)
  if type(added) == 'table' then
    return added
  end
  if stamped or more then
    added = added + seldom().set_more(record, more, stamped, now)
  end
  local number = log_change(log, key, op)
  if gone and not afresh and words > 0 then
    seldom().remove_fields(record, gone)
  elseif afresh and meta then
    count = count and count + added or redis.call('HLEN', record) - 1
    if count > words / 2 then
      -- Seldom: mostly a record is put with the fields that it had.
      redis.call('DEL', record)
      redis.call('HSET', record, META, ours, ...)
      if stamped or more then
        seldom().set_more(record, more, stamped, now)
      end
    end
  end
  local new = not live and redis.call('ZADD', base .. ':keys', 0, key) == 1
  if expires > 0 then
    if afresh or expires ~= before then
      forget_at(record, expires, log.offset)
      redis.call('ZADD', base .. ':due', string.format('%d', expires), key)
    end
  elseif before > 0 or (not live and not (new and not meta)) then
    redis.call('PERSIST', record)
    redis.call('ZREM', base .. ':due', key)
  end
  if #log.indexes > 0 then
    seldom().update_indexes(log.indexes, base, record, key, true)
  end
  return 1 + number
end

if not log.indexes then
  log.indexes = seldom().list_indexes(log.base)
end
for at = 1, #ARGV do
  ARGV[at] = write(cmsgpack.unpack(ARGV[at]))
end
write_log(log)
-- For every 16th change, some of what is no longer needed goes.
if log.number % TIDY_EVERY < log.number - log.first then
  local rounds = math.floor(log.number / TIDY_EVERY) - math.floor(log.first / TIDY_EVERY)
  local due = redis.call(
    'ZRANGEBYSCORE', log.base .. ':due', '-inf', string.format('%d', log.now),
    'LIMIT', 0, rounds * PURGE
  )
  if #due > 0 then
    seldom().remove_due(log, due)
  end
end
return ARGV -- each answer in the place of its write
