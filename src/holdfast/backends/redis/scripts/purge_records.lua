-- name: purge_records
-- Remove what is left of records that have expired, or were deleted a day ago.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  how many at most
--
-- Gives how many.
--# parts meta
local time, kept = redis.call('TIME'), redis.call('HGET', KEYS[1] .. ':log', 'n')
--# parts log packed index burial
log.indexes = log.indexes or list_indexes(log.base)
local due = redis.call(
  'ZRANGEBYSCORE', log.base .. ':due', '-inf', string.format('%d', log.now), 'LIMIT', 0, ARGV[1]
)
remove_due(log, due)
return #due
