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
  return op .. digits(updated) .. ':' .. digits(expires) .. ':' .. digits(number)
end

local function log_change(base, key)
  local number = redis.call('INCR', base .. ':number')
  redis.call('ZADD', base .. ':changes', number, key)
  return number
end

-- So that a repeat knows the operation also when others have written to the record since.
local function remember(base, key, op, number)
  redis.call('ZADD', base .. ':ops', number, op .. key)
end

-- The server forgets the key by itself at that instant of the store's clock.
local function forget_at(record, instant, offset)
  redis.call('PEXPIREAT', record, digits(math.ceil((instant - offset) / 1000)))
end

-- Leave of the record what a repeat and a watch need for a day. Without an operation id
-- (the server has removed it) that is only the change. Gives the change's number.
local function bury(base, record, key, op, now, offset)
  redis.call('DEL', record)
  local number = log_change(base, key)
  if op then
    redis.call('HSET', record, META, format_meta(op, now, GRAVE, number))
    forget_at(record, now + OP_MEMORY_US, offset)
  end
  redis.call('ZREM', base .. ':keys', key)
  redis.call('ZADD', base .. ':due', digits(now + OP_MEMORY_US), key)
  update_indexes(base, record, key, false)
  return number
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
local function remove_due(base, now, offset, limit)
  local due = redis.call('ZRANGEBYSCORE', base .. ':due', '-inf', digits(now), 'LIMIT', 0, limit)
  for _, key in ipairs(due) do
    local record = base .. ':r:' .. key
    local meta = parse_meta(redis.call('HGET', record, META))
    if meta and (meta.expires == 0 or meta.expires > now) then
      -- A grave that the server removed, and then a record that was made in its place.
      redis.call('ZREM', base .. ':due', key)
    elseif redis.call('ZSCORE', base .. ':keys', key) then
      bury(base, record, key, meta and meta.op, now, offset)
    else
      level(base, record, key)
    end
  end
  return #due
end

local TIDY_EVERY, PURGE = 16, 32 -- so that nobody has to purge who writes
local REMEMBERED = 2000 -- operations of the namespace: a pipeline has 1,000 at most

-- At every 16th change remove some of what is no longer needed.
local function tidy(base, now, offset, number)
  if number % TIDY_EVERY == 0 then
    remove_due(base, now, offset, PURGE)
    redis.call('ZREMRANGEBYRANK', base .. ':ops', 0, -REMEMBERED - 1)
  end
end
