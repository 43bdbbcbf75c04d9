-- name: append_events
-- Events of one run, by the rule of facets/events.py: all of them or none.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  run id
--       2  where the run is expected to be, or empty
--       …  for each: key, event id, type, emitted at (µs) or empty, data, 1 or 0 (none), the rest
--
-- Gives where the run is, then for each event its number and, if its key was known, the one's
-- type, data and rest; else three empty ones. Or, if all is refused, where the run is and why: the event
-- id that is known under another key, or `expected`.
--# parts clock
local base, run, expected = KEYS[1], ARGV[1], ARGV[2]
local head, names, events = base .. ':h:' .. run, base .. ':k:' .. run, base .. ':v:' .. run
local now = read_clock(KEYS[2])
local last = tonumber(redis.call('HGET', head, 'n') or 0)
local answers, new, own, ids = { last }, {}, {}, {}
local function answer(...)
  for _, value in ipairs({ ... }) do
    answers[#answers + 1] = value
  end
end
for at = 3, #ARGV, 7 do
  local key, id = ARGV[at], ARGV[at + 1]
  local known = own[key] or tonumber(redis.call('HGET', names, 'k' .. key) or 0)
  if known > last then
    local first = new[known - last]
    answer(known, ARGV[first + 2], ARGV[first + 4], ARGV[first + 6])
  elseif known > 0 then
    local event = redis.call('HGET', events, digits(known))
    if not event then
      return redis.error_reply('CORRUPT run ' .. run .. ': its event ' .. digits(known) .. ' is gone')
    end
    local stored = cmsgpack.unpack(event)
    answer(known, stored[3], stored[6], stored[7])
  else
    if ids[id] or redis.call('HEXISTS', names, 'i' .. id) == 1 then
      return { last, id }
    end
    new[#new + 1] = at
    own[key], ids[id] = last + #new, true
    answer(last + #new, '', '', '')
  end
end
if #new == 0 then
  return answers
end
if expected ~= '' and tonumber(expected) ~= last then
  return { last, 'expected' }
end

local fed = tonumber(redis.call('GET', base .. ':fed') or 0)
for number, at in ipairs(new) do
  -- A failover may lose the last numbers of the feed. Time goes on, so none is given out again.
  fed = math.max(fed + 1, now)
  local seq = digits(last + number)
  redis.call('HSET', names, 'k' .. ARGV[at], seq, 'i' .. ARGV[at + 1], seq)
  local emitted = ARGV[at + 3] == '' and digits(now) or ARGV[at + 3]
  redis.call('HSET', events, seq, cmsgpack.pack({
    ARGV[at], ARGV[at + 1], ARGV[at + 2], emitted, digits(now), ARGV[at + 4],
    ARGV[at + 5] == '1' and ARGV[at + 6] or '', digits(fed),
  }))
  redis.call('XADD', base .. ':events', digits(fed) .. '-0', 'r', run, 's', seq)
end
redis.call('SET', base .. ':fed', digits(fed))
if last == 0 then
  redis.call('ZADD', base .. ':runs', 0, run)
  redis.call('HSET', head, 'n', #new, 'g', digits(fed))
else
  redis.call('HSET', head, 'n', digits(last + #new))
end
answers[1] = last + #new
return answers
