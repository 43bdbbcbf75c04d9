-- name: create_index
-- Make an index, unless it is there: whoever writes from now on keeps it.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name of the index
redis.call('HSETNX', KEYS[1] .. ':indexes', ARGV[1], '>')
local number = redis.call('HGET', KEYS[1] .. ':log', 'n')
if tonumber(number) then -- without a mark that there are indexes; see parts/log.lua
  redis.call('HSET', KEYS[1] .. ':log', 'n', number .. '!')
end
return 1
