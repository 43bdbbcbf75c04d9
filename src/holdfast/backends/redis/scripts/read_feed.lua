-- name: read_feed
-- The next events of all runs.
--
-- KEYS  1  base of the namespace
-- ARGV  1  number in the feed above which
--       2  how many to look at
--
-- Gives false if the place lies above the end: it is of another store, or a failover has lost
-- what it is of. Else the number up to which everything was looked at and 1 if there may be more;
-- then for each event its number in the feed, run id, number in the run, and the event.
local base, after = KEYS[1], tonumber(ARGV[1])
local last = tonumber(redis.call('GET', base .. ':fed') or 0)
if after > last then
  return false
end
local entries = redis.call(
  'XRANGE', base .. ':events', string.format('%.0f-0', after + 1), '+', 'COUNT', ARGV[2]
)
local more = #entries == tonumber(ARGV[2])
local page = { string.format('%.0f', last), more and 1 or 0 }
for _, entry in ipairs(entries) do
  local number, run, seq = string.match(entry[1], '^(%d+)'), entry[2][2], entry[2][4]
  if more then
    page[1] = number
  end
  local event = redis.call('HGET', base .. ':v:' .. run, seq)
  -- Another run of the same name may have an event of the same number.
  -- One that cannot be read is told: the caller names it.
  local read, values = pcall(cmsgpack.unpack, event or '')
  if event and not (read and type(values) == 'table' and values[8] ~= number) then
    for _, value in ipairs({ number, run, seq, event }) do
      page[#page + 1] = value
    end
  end
end
return page
