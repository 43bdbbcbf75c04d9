-- name: purge_records
-- Remove what is left of records that have expired, or were deleted a day ago.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  how many at most
--
-- Gives how many.
--# parts log index burial
local log = open_log(KEYS[1], KEYS[2])
log.indexes = log.indexes or list_indexes(log.base)
local due = list_due(log, ARGV[1])
remove_due(log, due)
return #due
