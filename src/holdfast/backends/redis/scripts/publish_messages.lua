-- name: publish_messages
-- Add messages to the log, except those whose id is known.
--
-- KEYS  1  base of the namespace
--       2  clock
-- ARGV  1  for how many µs an id is known
--       …  for each: id, subject, payload, 1 or 0 (none), trace id
--
-- Gives how many are new.
--# parts clock
local SLACK_MS = 1000 -- the server's clock and the store's are read at different moments
local base, window = KEYS[1], tonumber(ARGV[1])
local now = read_clock(KEYS[2])
local last = tonumber(redis.call('GET', base .. ':sent') or 0)
local count = 0
for at = 2, #ARGV, 5 do
  local key = base .. ':m:' .. ARGV[at]
  local known = redis.call('GET', key)
  if not known or tonumber(known) <= now - window then
    -- A failover may lose the last numbers. Time goes on, so they are not given out again, and
    -- who still has a lost message cannot answer for another.
    last = math.max(last + 1, now)
    local fields = { 'i', ARGV[at], 's', ARGV[at + 1], 't', digits(now), 'p', ARGV[at + 2] }
    if ARGV[at + 3] == '1' then
      fields[9], fields[10] = 'c', ARGV[at + 4]
    end
    redis.call('XADD', base .. ':messages', digits(last) .. '-0', unpack(fields))
    redis.call('SET', base .. ':sent', digits(last))
    redis.call('SET', key, digits(now), 'PX', digits(window / 1000 + SLACK_MS))
    count = count + 1
  end
end
return count
