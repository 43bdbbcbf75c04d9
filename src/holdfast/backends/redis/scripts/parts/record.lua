-- What is kept of a record besides its fields: see keys.py.
local META = '\0'
local OP_BYTES = 16
local GRAVE = 1 -- in place of an expiry, and long ago: the record was deleted

local function parse_meta(meta)
  if not meta then
    return nil
  end
  local updated, expires, number = string.match(meta, '^(%d+):(%d+):(%d+)$', OP_BYTES + 1)
  return {
    op = string.sub(meta, 1, OP_BYTES),
    updated = tonumber(updated), expires = tonumber(expires), number = tonumber(number),
  }
end

local function format_meta(op, updated, expires, number)
  return op .. string.format('%d:%d:%d', updated, expires, number)
end

-- What a script knows of the namespace, and the changes that it makes: they are written down
-- together.
local function open_log(base, clock)
  local found = redis.call('MGET', clock, base .. ':number')
  local offset, number = tonumber(found[1] or 0), tonumber(found[2] or 0)
  return {
    base = base, indexes = list_indexes(base), now = server_now() + offset, offset = offset,
    first = number, number = number, changes = {}, ops = {},
  }
end

local function write_log(log)
  if #log.changes > 0 then
    redis.call('SET', log.base .. ':number', log.number)
    redis.call('ZADD', log.base .. ':changes', unpack(log.changes))
    log.changes = {}
  end
  if #log.ops > 0 then
    redis.call('ZADD', log.base .. ':ops', unpack(log.ops))
    log.ops = {}
  end
end

local LOG_AT_ONCE = 1000 -- words: what unpack takes is limited

-- Note the record's change, and the operation if there is one, so that a repeat knows it also
-- when others have written to the record since. Gives the change's number.
local function log_change(log, key, op)
  local number = log.number + 1
  local changes, ops = log.changes, log.ops
  log.number = number
  changes[#changes + 1] = number
  changes[#changes + 1] = key
  if op then
    ops[#ops + 1] = number
    ops[#ops + 1] = op .. key
  end
  if #changes == LOG_AT_ONCE then
    write_log(log)
  end
  return number
end

-- The server forgets the key by itself at that instant of the store's clock.
local function forget_at(record, instant, offset)
  redis.call('PEXPIREAT', record, digits(math.ceil((instant - offset) / 1000)))
end

-- Leave of the record what a repeat and a watch need for a day. Without an operation id
-- (the server has removed it) that is only the change, whose number is given.
local function bury(log, record, key, op, number)
  local base, ends = log.base, log.now + OP_MEMORY_US
  redis.call('DEL', record)
  if op then
    redis.call('HSET', record, META, format_meta(op, log.now, GRAVE, number))
    forget_at(record, ends, log.offset)
  end
  redis.call('ZREM', base .. ':keys', key)
  redis.call('ZADD', base .. ':due', digits(ends), key)
  update_indexes(log.indexes, base, record, key, false)
end

-- Remove a grave that is a day old. Who was away for so long has missed something.
local function level(base, record, key)
  local number = redis.call('ZSCORE', base .. ':changes', key)
  if number and tonumber(number) > tonumber(redis.call('GET', base .. ':lost') or 0) then
    redis.call('SET', base .. ':lost', digits(tonumber(number)))
  end
  redis.call('DEL', record)
  redis.call('ZREM', base .. ':changes', key)
  redis.call('ZREM', base .. ':due', key)
end

-- Remove up to `limit` of what is due: records that have expired, old graves.
local function remove_due(log, limit)
  local base, now = log.base, log.now
  local due = redis.call('ZRANGEBYSCORE', base .. ':due', '-inf', digits(now), 'LIMIT', 0, limit)
  for _, key in ipairs(due) do
    local record = base .. ':r:' .. key
    local meta = parse_meta(redis.call('HGET', record, META))
    if meta and (meta.expires == 0 or meta.expires > now) then
      -- A grave that the server removed, and then a record that was made in its place.
      redis.call('ZREM', base .. ':due', key)
    elseif redis.call('ZSCORE', base .. ':keys', key) then
      bury(log, record, key, meta and meta.op, log_change(log, key))
    else
      level(base, record, key)
    end
  end
  write_log(log)
  return #due
end

local TIDY_EVERY, PURGE = 16, 32 -- so that nobody has to purge who writes
local REMEMBERED = 2000 -- operations of the namespace: a pipeline has 1,000 at most

-- Write the log down, and for every 16th change remove some of what is no longer needed.
local function tidy(log)
  local rounds = math.floor(log.number / TIDY_EVERY) - math.floor(log.first / TIDY_EVERY)
  write_log(log)
  if rounds > 0 then
    remove_due(log, rounds * PURGE)
    redis.call('ZREMRANGEBYRANK', log.base .. ':ops', 0, -REMEMBERED - 1)
  end
end
