-- name: read_changes
-- The next entries of the log of records, each with the record as it is now.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  number above which
--       2  how many entries to look at
--       3  prefix of the keys that are told
--
-- Gives false if some of what lies above is no longer kept. Else the clock, the number up to
-- which everything was looked at, 1 if there may be more; then number, key and record of each.
--# parts clock
local base, prefix, after = KEYS[1], ARGV[3], tonumber(ARGV[1])
local kept = redis.call('HGET', base .. ':log', 'n') or redis.call('GET', base .. ':number') or '0'
local last = tonumber((string.gsub(kept, '!', '')))
-- Above the last one: the cursor is of another store, or a failover has lost what it is of.
if after < tonumber(redis.call('GET', base .. ':lost') or 0) or after > last then
  return false
end
local found = redis.call(
  'ZRANGEBYSCORE', base .. ':changes', '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2]
)
local more = #found == 2 * tonumber(ARGV[2])
local page = { digits((read_clock(KEYS[2]))), digits(more and tonumber(found[#found]) or last), more and 1 or 0 }
for at = 1, #found, 2 do
  local key = found[at]
  if string.sub(key, 1, #prefix) == prefix then
    page[#page + 1] = found[at + 1]
    page[#page + 1] = key
    page[#page + 1] = redis.call('HGETALL', base .. ':r:' .. key)
  end
end
return page
