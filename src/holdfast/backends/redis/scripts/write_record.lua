-- name: write_record
-- One write of a record, by the table in facets/records.py. Each call out of Lua costs 4 µs, so
-- what cannot have changed is not touched.
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
--       8  how many fields are expected
--       9  how many fields are set to a value
--      10  how many fields go
--       …  the fields that are expected; for each of them 1 or 0 (absent), and the value
--       …  the fields that are set, each with its value
--       …  the fields that go
--       …  the fields that are stamped, each with how many µs from now
--
-- Gives 1 + the number of the change if it was applied, 0 refused, -1 a repeat that cannot tell.
--# parts clock index record
local MOST = 5000 -- words at a time: what unpack takes is limited
local base, key, op = KEYS[1], ARGV[1], ARGV[2]
local record = base .. ':r:' .. key
local now, offset = read_clock(KEYS[2])
local ttl, replace, doubt = tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[6])
local wanted = 11 + ARGV[8]
local set = wanted + 2 * ARGV[8]
local gone = set + 2 * ARGV[9]
local stamped = gone + ARGV[10]

local found = redis.call('HMGET', record, META, unpack(ARGV, 11, math.min(11 + MOST, wanted) - 1))
for from = 11 + MOST, wanted - 1, MOST do
  local some = redis.call('HMGET', record, unpack(ARGV, from, math.min(from + MOST, wanted) - 1))
  for _, value in ipairs(some) do
    found[#found + 1] = value
  end
end
local meta = parse_meta(found[1])
if meta and meta.op == op then
  return 1 + meta.number
end
if doubt >= 0 then
  local known = redis.call('ZSCORE', base .. ':ops', op .. key)
  if known then
    return 1 + known
  end
  -- A first try came after the caller asked. Has the record changed since then, and are
  -- operations forgotten since then?
  local seen = tonumber(ARGV[7])
  if meta and meta.updated >= now - doubt and meta.number > seen then
    local oldest = redis.call('ZRANGE', base .. ':ops', 0, 0, 'WITHSCORES')[2]
    if oldest and tonumber(oldest) > seen + 1 then
      return -1
    end
  end
end
local live = meta ~= nil and (meta.expires == 0 or meta.expires > now)
if ARGV[5] == '1' and not live then
  return 0
end
for at = wanted, set - 1, 2 do
  local value = live and found[2 + (at - wanted) / 2]
  if value ~= (ARGV[at] == '1' and ARGV[at + 1]) then
    return 0
  end
end

local sets = gone > set or stamped <= #ARGV
if not live and not sets then
  return 1 -- there was nothing, and there is nothing
end
local afresh = replace or not live
if meta and afresh then
  redis.call('DEL', record)
end
for from = gone, afresh and 0 or stamped - 1, MOST do
  redis.call('HDEL', record, unpack(ARGV, from, math.min(from + MOST, stamped) - 1))
end
if not sets and (afresh or redis.call('HLEN', record) == 1) then
  local number = bury(base, record, key, op, now, offset)
  remember(base, key, op, number)
  tidy(base, now, offset, number)
  return 1 + number
end

local before = live and meta.expires or 0
local expires = before
if ttl >= 0 then
  expires = ttl > 0 and now + ttl or 0
end
local number = log_change(base, key)
remember(base, key, op, number)
redis.call(
  'HSET', record, META, format_meta(op, now, expires, number),
  unpack(ARGV, set, math.min(set + MOST, gone) - 1)
)
for from = set + MOST, gone - 1, MOST do
  redis.call('HSET', record, unpack(ARGV, from, math.min(from + MOST, gone) - 1))
end
for at = stamped, #ARGV, 2 do
  redis.call('HSET', record, ARGV[at], digits(math.floor((now + ARGV[at + 1]) / 1000)))
end
local new = not live and redis.call('ZADD', base .. ':keys', 0, key) == 1
if expires > 0 then
  if afresh or expires ~= before then
    forget_at(record, expires, offset)
    redis.call('ZADD', base .. ':due', digits(expires), key)
  end
elseif before > 0 or (not live and not (new and meta == nil)) then
  redis.call('PERSIST', record)
  redis.call('ZREM', base .. ':due', key)
end
update_indexes(base, record, key, true)
tidy(base, now, offset, number)
return 1 + number
