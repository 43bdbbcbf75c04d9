-- Messages and groups: see keys.py.
local LOOK = 200 -- messages per call, so that nobody else waits for long
local PAGE = 16  -- of them in Lua's memory at a time, with their payloads
local LIFE = 1048576 -- as in facets/transport.py

-- A message's number as deliveries name it: in byte order they are in the order of numbers.
local function place_of(number)
  return string.format('%016.0f', number)
end

local function words_of(text)
  local words = {}
  for word in string.gmatch(text, '[^.]+') do
    words[#words + 1] = word
  end
  return words
end

-- True if the words of a subject are those of the pattern: * is any one, > all that follow.
local function matches(pattern, subject)
  for at, word in ipairs(pattern) do
    if word == '>' then
      return #subject >= at
    end
    if word ~= '*' and word ~= subject[at] then
      return false
    end
  end
  return #subject == #pattern
end

-- Tells of a subject whether one of the patterns, between blanks, asks for it.
local function chooser(patterns)
  local choices, known = {}, {}
  for pattern in string.gmatch(patterns, '[^ ]+') do
    choices[#choices + 1] = words_of(pattern)
  end
  return function(subject)
    if known[subject] == nil then
      local words = words_of(subject)
      known[subject] = false
      for _, choice in ipairs(choices) do
        known[subject] = known[subject] or matches(choice, words)
      end
    end
    return known[subject]
  end
end

-- The group's settings, position, and by which operation it was made: that tells it from others
-- of its name. Nil if there is no such group.
local function read_group(base, name)
  local found = redis.call(
    'HMGET', base .. ':g:' .. name, 'subjects', 'timeout', 'most', 'position', 'op'
  )
  if not found[1] then
    return nil
  end
  return {
    wants = chooser(found[1]), timeout = tonumber(found[2]), most = tonumber(found[3]),
    position = tonumber(found[4]), op = found[5] or '',
  }
end

-- The fields of the message with that number; nil if it is gone.
local function read_message(base, number)
  local entries = redis.call('XRANGE', base .. ':messages', digits(number), digits(number))
  return entries[1] and entries[1][2]
end

-- Adds id, subject, time, payload and trace id (or false) of a message to what is told.
local function tell(reply, fields)
  for at = 2, 8, 2 do
    reply[#reply + 1] = fields[at]
  end
  reply[#reply + 1] = fields[10] or false
end

-- Visits messages above the position, the first `page` of them in one read, until a visit gives
-- true. Gives where it came to, and whether there may be more.
local function walk(base, position, page, visit)
  local left = LOOK
  while left > 0 do
    page = math.min(page, PAGE, left)
    local entries = redis.call(
      'XRANGE', base .. ':messages', digits(position + 1), '+', 'COUNT', page
    )
    for _, entry in ipairs(entries) do
      position = tonumber((string.match(entry[1], '^%d+')))
      if visit(position, entry[2]) then
        return position, true
      end
    end
    if #entries < page then
      return position, false
    end
    left, page = left - page, 2 * page
  end
  return position, true
end
