-- name: purge_records
-- Remove what is left of records that have expired, or were deleted a day ago.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  how many at most
--
-- Gives how many.
--# parts clock index record
return remove_due(open_log(KEYS[1], KEYS[2]), ARGV[1])
