-- name: write_record
-- One write of a record, by the table in facets/records.py. Each call out of Lua costs as much
-- as all else, so what cannot have changed is not touched.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  key
--       2  operation id
--       3  time to live: -1 stays, 0 none, else microseconds from now
--       4  1: other fields go
--       5  1: the record must be there
--       6  in a repeat, how many µs ago the first try can have been applied at most; else -1
--       7  the number of a change that was there before the caller asked
--       8  how many expectations: first all fields, then for each 1 or 0 (absent), and the value
--       …  for each field that is set: field; v (value), s (stamp, µs from now) or d (goes); value
--
-- Gives 1 + the number of the change if it was applied, 0 refused, -1 a repeat that cannot tell.
--# parts clock index record
local PURGE_EVERY, PURGE = 16, 32 -- so that nobody has to purge who writes
local base, key, op = KEYS[1], ARGV[1], ARGV[2]
local record = base .. ':r:' .. key
local now, offset = read_clock(KEYS[2])
local ttl, replace, doubt, expectations = tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[6]), tonumber(ARGV[8])
local wanted = 9 + expectations
local found = redis.call('HMGET', record, META, unpack(ARGV, 9, wanted - 1))
local meta = parse_meta(found[1])
if meta and meta.op == op then
  return 1 + meta.number
end
-- What was written before the caller asked does not hide a first try, which came later.
if doubt >= 0 and meta and meta.updated >= now - doubt and meta.number > tonumber(ARGV[7]) then
  return -1
end
local live = meta ~= nil and (meta.expires == 0 or meta.expires > now)
if ARGV[5] == '1' and not live then
  return 0
end
for at = 0, expectations - 1 do
  local value = live and found[at + 2]
  if value ~= (ARGV[wanted + 2 * at] == '1' and ARGV[wanted + 2 * at + 1]) then
    return 0
  end
end

local set, gone = {}, {}
for field = wanted + 2 * expectations, #ARGV, 3 do
  local kind, value = ARGV[field + 1], ARGV[field + 2]
  if kind == 'd' then
    gone[#gone + 1] = ARGV[field]
  else
    set[#set + 1] = ARGV[field]
    set[#set + 1] = kind == 's' and digits(math.floor((now + value) / 1000)) or value
  end
end
if not live and #set == 0 then
  return 1 -- there was nothing, and there is nothing
end
local afresh = replace or not live
if meta and afresh then
  redis.call('DEL', record)
end
if not afresh then
  for from = 1, #gone, 5000 do -- what unpack takes is limited
    redis.call('HDEL', record, unpack(gone, from, math.min(from + 4999, #gone)))
  end
end
if #set == 0 and (afresh or redis.call('HLEN', record) == 1) then
  return 1 + bury(base, record, key, op, now, offset)
end

local before = live and meta.expires or 0
local expires = before
if ttl >= 0 then
  expires = ttl > 0 and now + ttl or 0
end
local number = log_change(base, key)
set[#set + 1] = META
set[#set + 1] = format_meta(op, now, expires, number)
for from = 1, #set, 5000 do
  redis.call('HSET', record, unpack(set, from, math.min(from + 4999, #set)))
end
if not live then
  redis.call('ZADD', base .. ':keys', 0, key)
end
if expires > 0 then
  if afresh or expires ~= before then
    forget_at(record, expires, offset)
    redis.call('ZADD', base .. ':due', digits(expires), key)
  end
elseif before > 0 or not live then -- the server may have removed an expired one, but not from `due`
  redis.call('PERSIST', record)
  redis.call('ZREM', base .. ':due', key)
end
update_indexes(base, record, key, true)
if number % PURGE_EVERY == 0 then
  remove_due(base, now, offset, PURGE)
end
return 1 + number
