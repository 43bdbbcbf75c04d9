-- name: write_records
-- Writes of records, one after the other, by the table in facets/records.py. Each call out of
-- Lua costs 2 to 4 µs, so what cannot have changed is not touched, and what is one for all writes
-- is called once. The server runs all of the text with each call, and a function costs 0.3 µs to
-- make: so the usual put of a record that is absent, or was put before, stands by itself at the end, and
-- all else is made inside of `general`, what few of those need inside of `seldom`.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  …  the writes, each a row of values in MessagePack. A usual put is
--       1  true
--       2  key
--       3  operation id
--       4  time to live: 0 none, else microseconds from now
--       5  all fields, packed as packed.lua has them
--       and whatever else
--       1  key
--       2  operation id
--       3  time to live: -1 stays, 0 none, else microseconds from now
--       4  true: other fields go
--       5  nil, or a list of what not every write has, nil for each that it has not:
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
--# parts meta
local MOST = 5000 -- words at a time: what unpack takes is limited
local TIDY_EVERY, PURGE = 16, 32 -- so that nobody has to purge who writes
local TRUE = 0xc3 -- in MessagePack

local base = KEYS[1]
local time, kept = redis.call('TIME'), redis.call('HGET', base .. ':log', 'n')

-- All writes but usual puts: gives `write`, the log, and what else of it is wanted here.
local function general()
  --# parts log
  local made
  local function seldom()
    if made then
      return made
    end
    --# parts packed index burial recall words
    made = {
      bury = bury, list_indexes = list_indexes, look_back = look_back,
      parse_change = parse_change, read_more = read_more, remove_due = remove_due,
      remove_fields = remove_fields, set_more = set_more, unpack_fields = unpack_fields,
      update_indexes = update_indexes,
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
    local now = log.now
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
      if words == 0 and gone then
        -- Removes nothing yet. But who has begun by removing may go on, also on a full server.
        seldom().remove_fields(record, gone)
      end
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
    log.indexes = seldom().list_indexes(base)
  end
  return { log = log, seldom = seldom, write = write, write_log = write_log }
end

-- How many changes there were, if there is neither an index nor another clock than the server's.
local first = tonumber(kept)
local number, size, changes, ops = first, 0, { 0, 0 }, { 'n', 0, 0, 0 }
-- Between operation id and number: it stays for ever, and its hash has no other fields.
local middle = first and string.format('0;0;%d;', time[1] * 1000000 + time[2])
local rest

local function go_on()
  rest = general()
  rest.log.number, rest.log.size = number or rest.log.number, size
  rest.log.changes, rest.log.ops = changes, ops
end

for at = 1, #ARGV do
  local row, answer = ARGV[at], nil
  if string.byte(row) ~= TRUE then
    if not rest then
      go_on()
    end
    answer = rest.write(cmsgpack.unpack(row))
  else
    local _, key, op, ttl, packed = cmsgpack.unpack(row)
    if first and not rest and ttl == 0 then
      local record = base .. ':r:' .. key
      local meta = redis.pcall('HGET', record, META)
      -- Absent, or put before, for ever, and not by this operation.
      if not meta or (
        type(meta) == 'string' and string.sub(meta, OP_BYTES + 1, OP_BYTES + 4) == '0;0;'
        and string.sub(meta, 1, OP_BYTES) ~= op
      ) then
        local ours = op .. middle .. string.format('%d', number + 1) .. ';' .. packed
        answer = redis.pcall('HSET', record, META, ours)
        if type(answer) ~= 'table' then
          number, size = number + 1, size + 2
          changes[size - 1], changes[size] = number, key
          ops[size + 1], ops[size + 2] = number % REMEMBERED, op .. key
          answer = 1 + number
          if not meta and redis.call('ZADD', base .. ':keys', 0, key) == 0 then
            redis.call('ZREM', base .. ':due', key) -- the server has removed it before we did
          end
        end
      end
    end
    if not answer then
      if not rest then
        go_on()
      end
      answer = rest.write(key, op, ttl, true, packed)
    end
  end
  ARGV[at] = answer
end
if rest then
  rest.write_log(rest.log)
  first, number = rest.log.first, rest.log.number
elseif size > 0 then
  ops[2] = number
  redis.call('HSET', base .. ':log', unpack(ops, 1, size + 2))
  redis.call('ZADD', base .. ':changes', unpack(changes, 1, size))
end
-- For every 16th change, some of what is no longer needed goes.
if number % TIDY_EVERY < number - first then
  local rounds = math.floor(number / TIDY_EVERY) - math.floor(first / TIDY_EVERY)
  local now = time[1] * 1000000 + time[2] + (rest and rest.log.offset or 0)
  local due = redis.call(
    'ZRANGEBYSCORE', base .. ':due', '-inf', string.format('%d', now), 'LIMIT', 0, rounds * PURGE
  )
  if #due > 0 then
    rest = rest or general()
    rest.log.number = number
    rest.seldom().remove_due(rest.log, due)
  end
end
return ARGV -- each answer in the place of its write
