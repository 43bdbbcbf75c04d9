-- name: purge_records
-- Remove what is left of records that have expired, or were deleted a day ago.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  how many at most
--
-- Gives how many.
--# parts clock index record
local now, offset = read_clock(KEYS[2])
return remove_due(KEYS[1], now, offset, ARGV[1])
