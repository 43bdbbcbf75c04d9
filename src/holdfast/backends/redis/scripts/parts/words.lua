-- Records of more fields than one call takes, and what else few writes do to fields.

-- Adds to what was found the values of the fields that one call did not take.
local function read_more(record, fields, found)
  for from = MOST + 1, #fields, MOST do
    local last = math.min(from + MOST - 1, #fields)
    for _, value in ipairs(redis.call('HMGET', record, unpack(fields, from, last))) do
      found[#found + 1] = value
    end
  end
end

-- How many of the fields are new.
local function set_words(record, words)
  local added = 0
  for from = 1, #words, MOST do
    local last = math.min(from + MOST - 1, #words)
    added = added + redis.call('HSET', record, unpack(words, from, last))
  end
  return added
end

-- Sets further fields and those that are stamped, if there are any; how many of them are new.
local function set_more(record, more, stamped, now)
  local words = {}
  for at = 1, stamped and #stamped or 0, 2 do
    words[at] = stamped[at]
    words[at + 1] = string.format('%d', math.floor((now + stamped[at + 1]) / 1000))
  end
  return set_words(record, words) + set_words(record, more or {})
end

local function remove_fields(record, fields)
  for from = 1, #fields, MOST do
    redis.call('HDEL', record, unpack(fields, from, math.min(from + MOST - 1, #fields)))
  end
end
