-- What is kept of a record besides its fields, and the log of changes: see keys.py.
local META = '\0'
local OP_BYTES = 16
local REMEMBERED = 4000 -- changes: a pipeline has 1,000, and each may bury two that have expired

-- When the record expires, 0 for never, and how many fields it has, nil if that is not known.
local function parse_meta(meta)
  if string.sub(meta, OP_BYTES + 1, OP_BYTES + 2) == '0;' then -- as nearly always
    return 0, tonumber(string.match(meta, '^%d*', OP_BYTES + 3))
  end
  local expires, count = string.match(meta, '^(%d+);(%d*)', OP_BYTES + 1)
  if not expires then -- written before fields were counted
    expires = string.match(meta, '^%d+:(%d+)', OP_BYTES + 1)
  end
  return tonumber(expires), tonumber(count)
end

-- All digits of a whole number: tostring would give 1.7e+15.
local function digits(number)
  return string.format('%d', number)
end

-- What a script knows of the namespace, and the changes that it makes: they are written down
-- together. The number that is kept ends in ! if there are indexes, so that nobody else asks for
-- them; `indexes` is nil until somebody has.
local function open_log(base, clock)
  local offset, time = redis.call('GET', clock) or 0, redis.call('TIME')
  local kept = redis.call('HGET', base .. ':log', 'n')
  local number = tonumber(kept)
  local indexes = number and {}
  if not number then -- an older version kept it in a key of its own
    number = kept and string.sub(kept, 1, -2) or redis.call('GET', base .. ':number') or 0
  end
  local now = time[1] * 1000000 + time[2] + offset
  return {
    base = base, now = now, offset = offset, stamp = string.format(';%d;', now),
    first = tonumber(number), number = tonumber(number), indexes = indexes,
    size = 0, changes = {}, ops = { 'n', 0 }, forever = {},
  }
end

-- What is ours of a record that the change with this number leaves. Numbers are slow to write:
-- what comes before this one is the same for many puts of a script.
local function format_meta(log, op, expires, count, number)
  local middle = expires == 0 and log.forever[count]
  if not middle then
    middle = digits(expires) .. ';' .. count .. log.stamp
    if expires == 0 then
      log.forever[count] = middle
    end
  end
  return op .. middle .. digits(number)
end

local function write_log(log)
  if log.size > 0 then
    log.ops[2] = #log.indexes > 0 and log.number .. '!' or log.number
    redis.call('HSET', log.base .. ':log', unpack(log.ops))
    redis.call('ZADD', log.base .. ':changes', unpack(log.changes))
    log.size, log.changes, log.ops = 0, {}, { 'n', 0 }
  end
end

-- Note the record's change, and the operation if there is one, so that a repeat knows it also
-- when others have written to the record since. Gives the change's number.
local function log_change(log, key, op)
  local number, size = log.number + 1, log.size
  local changes, ops = log.changes, log.ops
  changes[size + 1], changes[size + 2] = number, key
  ops[size + 3], ops[size + 4] = number % REMEMBERED, op and op .. key or ''
  log.number, log.size = number, size + 2
  if op and log.known then
    log.known[op .. key] = number
  end
  if size + 2 == 1000 then -- words: what unpack takes is limited
    write_log(log)
  end
  return number
end

-- The server forgets the key by itself at that instant of the store's clock.
local function forget_at(record, instant, offset)
  redis.call('PEXPIREAT', record, digits(math.ceil((instant - offset) / 1000)))
end

-- Up to `limit` keys of which something is due to be removed.
local function list_due(log, limit)
  return redis.call('ZRANGEBYSCORE', log.base .. ':due', '-inf', digits(log.now), 'LIMIT', 0, limit)
end
