-- Let whoever writes records next look for indexes and for the clock's offset; see log.lua.
local function mark_log(base)
  local number = redis.call('HGET', base .. ':log', 'n')
  if tonumber(number) then -- there is no mark yet
    redis.call('HSET', base .. ':log', 'n', number .. '!')
  end
end
