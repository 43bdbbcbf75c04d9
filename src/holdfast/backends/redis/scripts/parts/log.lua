-- The log of changes, and what each of them leaves with its record: see keys.py.

-- When the record expires, 0 for never, and how many fields its hash has, nil if that is not known:
-- 0 while all of them are packed.
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

-- What the script knows of the namespace KEYS[1], by the clock KEYS[2], and the changes that it
-- makes: they are written down together. `time` and `kept` are the server's clock and the number
-- of the last change, as the script has found them. %d is written out wherever all digits of a
-- number are wanted (tostring would give 1.7e+15).
local log = {
  base = KEYS[1], number = tonumber(kept), offset = 0, indexes = {},
  size = 0, changes = { 0, 0 }, ops = { 'n', 0, 0, 0 },
}
if not log.number then
  -- There is none yet, or it ends in !: there are indexes, or the clock was moved. Where it is
  -- a plain number nobody has to ask for these. An older version kept it in a key of its own.
  log.number = tonumber(
    kept and string.sub(kept, 1, -2) or redis.call('GET', log.base .. ':number') or 0
  )
  log.offset = redis.call('GET', KEYS[2]) or 0
  log.indexes = nil -- until somebody lists them
end
log.first = log.number
log.now = time[1] * 1000000 + time[2] + log.offset
log.stamp = string.format(';%d;', log.now)

-- What is ours of a record that the change with this number leaves. Numbers are slow to write:
-- what comes before this one is the same for many puts of a script.
local function format_meta(log, op, expires, count, number)
  if expires ~= 0 or count ~= log.count then
    log.count = expires == 0 and count
    log.middle = string.format('%d;', expires) .. count .. log.stamp
  end
  return op .. log.middle .. string.format('%d', number)
end

local function write_log(log)
  if log.size > 0 then
    local marked = #log.indexes > 0 or tonumber(log.offset) ~= 0
    log.ops[2] = marked and log.number .. '!' or log.number
    redis.call('HSET', log.base .. ':log', unpack(log.ops, 1, log.size + 2))
    redis.call('ZADD', log.base .. ':changes', unpack(log.changes, 1, log.size))
    log.size = 0
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
  redis.call('PEXPIREAT', record, string.format('%d', math.ceil((instant - offset) / 1000)))
end
