-- name: drop_index
-- Remove an index with all its entries.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name of the index
--
-- Gives 1 if it was there, else 0.
redis.call('UNLINK', KEYS[1] .. ':x:' .. ARGV[1], KEYS[1] .. ':e:' .. ARGV[1])
return redis.call('HDEL', KEYS[1] .. ':indexes', ARGV[1])
