-- name: create_index
-- Make an index, unless it is there: whoever writes from now on keeps it.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name of the index
--# parts mark
redis.call('HSETNX', KEYS[1] .. ':indexes', ARGV[1], '>')
mark_log(KEYS[1])
return 1
