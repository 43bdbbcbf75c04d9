-- name: write_record
-- One write of a record, by the table in facets/records.py.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  key
--       2  operation id
--       3  time to live: -1 stays, 0 none, else microseconds from now
--       4  1: other fields go
--       5  1: the record must be there
--       6  in a repeat, how many µs ago the first try can have been applied at most; else -1
--       7  how many expectations; for each: field, 1 or 0 (absent), value
--       …  for each field that is set: field, v (value), s (stamp, so many µs from now), d (goes), value
--
-- Gives 1 applied, 0 refused, -1 a repeat that cannot tell.
--# parts clock index record
local base, key, op = KEYS[1], ARGV[1], ARGV[2]
local record = base .. ':r:' .. key
local now, offset = read_clock(KEYS[2])
local ttl, replace, doubt = tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[6])
local meta = read_meta(record)
if meta and meta.op == op then
  return 1
end
if doubt >= 0 and meta and meta.updated >= now - doubt then
  return -1
end
local filled = meta ~= nil and redis.call('HLEN', record) > 1
local live = filled and (meta.expires == 0 or meta.expires > now)
if ARGV[5] == '1' and not live then
  return 0
end

local at, expectations = 8, tonumber(ARGV[7])
for _ = 1, expectations do
  local found = live and redis.call('HGET', record, ARGV[at])
  local wanted = ARGV[at + 1] == '1' and ARGV[at + 2]
  if found ~= wanted then
    return 0
  end
  at = at + 3
end

local set, gone = {}, {}
for field = at, #ARGV, 3 do
  local kind, value = ARGV[field + 1], ARGV[field + 2]
  if kind == 'd' then
    gone[#gone + 1] = ARGV[field]
  else
    set[#set + 1] = ARGV[field]
    set[#set + 1] = kind == 's' and digits(math.floor((now + value) / 1000)) or value
  end
end
if replace or not live then
  redis.call('DEL', record)
elseif #gone > 0 then
  for from = 1, #gone, 5000 do -- what unpack takes is limited
    redis.call('HDEL', record, unpack(gone, from, math.min(from + 4999, #gone)))
  end
end
for from = 1, #set, 5000 do
  redis.call('HSET', record, unpack(set, from, math.min(from + 4999, #set)))
end

local kept = live and not replace and 1 or 0 -- the field that is ours
if redis.call('HLEN', record) == kept then
  bury(base, record, key, op, now, offset, filled)
else
  local expires = ttl > 0 and now + ttl or 0
  if ttl < 0 and live then
    expires = meta.expires
  end
  write_meta(record, op, now, expires, log_change(base, key))
  redis.call('ZADD', base .. ':keys', 0, key)
  if expires > 0 then
    forget_at(record, expires, offset)
    redis.call('ZADD', base .. ':due', digits(expires), key)
  else
    redis.call('PERSIST', record)
    redis.call('ZREM', base .. ':due', key)
  end
  update_indexes(base, record, key, true)
end
hint(base)
remove_due(base, now, offset, 2) -- so that nobody has to purge who writes
return 1
