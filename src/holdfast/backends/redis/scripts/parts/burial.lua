-- The end of records: see keys.py.
local GRAVE = 1 -- in place of an expiry, and long ago: the record was deleted

-- Leave of the record what a repeat and a watch need for a day. Without an operation id
-- (the server has removed it) that is only the change, whose number is given.
local function bury(log, record, key, op, number)
  local base, ends = log.base, log.now + OP_MEMORY_US
  redis.call('DEL', record)
  if op then
    redis.call('HSET', record, META, format_meta(log, op, GRAVE, 0, number))
    forget_at(record, ends, log.offset)
  end
  redis.call('ZREM', base .. ':keys', key)
  redis.call('ZADD', base .. ':due', string.format('%d', ends), key)
  update_indexes(log.indexes, base, record, key, false)
end

-- Remove a grave that is a day old. Who was away for so long has missed something.
local function level(base, record, key)
  local number = redis.call('ZSCORE', base .. ':changes', key)
  if number and tonumber(number) > tonumber(redis.call('GET', base .. ':lost') or 0) then
    redis.call('SET', base .. ':lost', string.format('%d', number))
  end
  redis.call('DEL', record)
  redis.call('ZREM', base .. ':changes', key)
  redis.call('ZREM', base .. ':due', key)
end

-- Remove what is due of these: records that have expired, old graves.
local function remove_due(log, due)
  local base, now = log.base, log.now
  for _, key in ipairs(due) do
    local record = base .. ':r:' .. key
    local meta = redis.call('HGET', record, META)
    local expires = meta and parse_meta(meta)
    if meta and (expires == 0 or expires > now) then
      -- A grave that the server removed, and then a record that was made in its place.
      redis.call('ZREM', base .. ':due', key)
    elseif redis.call('ZSCORE', base .. ':keys', key) then
      bury(log, record, key, meta and string.sub(meta, 1, OP_BYTES), log_change(log, key))
    else
      level(base, record, key)
    end
  end
  write_log(log)
end
