-- name: fill_index
-- Put the next page of records that were there before it into the index.
--
-- KEYS  1  base of the namespace
-- ARGV  1  name of the index
--       2  how many records to look at
--
-- Gives 1 when it is complete, or is there no more; else 0.
--# parts meta packed index
local base, name, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])
-- `>` and the last key that is in it, `complete` at the end.
local state = redis.call('HGET', base .. ':indexes', name)
if not state or state == 'complete' then
  return 1
end
local prefix, fields = parts_of(name)
local from = state == '>' and '[' .. prefix or '(' .. string.sub(state, 2)
local keys = redis.call('ZRANGEBYLEX', base .. ':keys', from, '+', 'LIMIT', 0, limit)
for _, key in ipairs(keys) do
  if string.sub(key, 1, #prefix) ~= prefix then
    keys = {} -- all that follow lie behind the prefix too
    break
  end
  update_index(base, name, fields, key, entry_of(base .. ':r:' .. key, key, fields))
end
local complete = #keys < limit
redis.call('HSET', base .. ':indexes', name, complete and 'complete' or '>' .. keys[#keys])
return complete and 1 or 0
