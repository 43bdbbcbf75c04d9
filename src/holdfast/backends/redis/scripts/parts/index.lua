-- Entries of indexes, byte for byte as facets/records_scan.py has them:
-- lead NUL sort_key NUL key, so that their byte order is the index's.
local CUT = 32 -- bytes of a value that an index keeps
local MOST_DIGITS = 19

local function hex(value)
  return (string.gsub(string.sub(value, 1, CUT), '.', function(char)
    return string.format('%02x', string.byte(char))
  end))
end

local function sort_key(value)
  local sign, number = string.match(value, '^(%-?)(%d+)$')
  local whole = number and #number <= MOST_DIGITS
    and (string.sub(number, 1, 1) ~= '0' or value == '0')
  if whole and #number == MOST_DIGITS then
    whole = number <= (sign == '-' and '9223372036854775808' or '9223372036854775807')
  end
  if not whole then
    return 't' .. hex(value)
  end
  local padded = string.rep('0', MOST_DIGITS - #number) .. number
  if sign == '' then
    return 'n1' .. padded
  end
  return 'n0' .. (string.gsub(padded, '%d', function(digit) return tostring(9 - digit) end))
end

-- An index's name taken apart: its prefix, and its fields.
local function parts_of(name)
  local parts, from = {}, 1
  while true do
    local at = string.find(name, '\0', from, true)
    parts[#parts + 1] = string.sub(name, from, (at or 0) - 1)
    if not at then
      return table.remove(parts, 1), parts
    end
    from = at + 1
  end
end

-- The record's entry, false if it lacks one of the fields.
local function entry_of(record, key, fields)
  local found = redis.call('HMGET', record, META, unpack(fields))
  local _, packed = unpack_fields(found[1] or '')
  local leads, last = {}, nil
  for at = 1, #fields do
    local value = found[1 + at]
    if packed then
      value = packed[fields[at]]
    end
    if not value then
      return false
    end
    if at < #fields then
      leads[at] = hex(value)
    end
    last = value
  end
  return table.concat(leads, '.') .. '\0' .. sort_key(last) .. '\0' .. key
end

local function update_index(base, name, fields, key, entry)
  local entries, by_key = base .. ':x:' .. name, base .. ':e:' .. name
  local old = redis.call('HGET', by_key, key)
  if old == entry then
    return
  end
  if old then
    redis.call('ZREM', entries, old)
  end
  if entry then
    redis.call('ZADD', entries, 0, entry)
    redis.call('HSET', by_key, key, entry)
  else
    redis.call('HDEL', by_key, key)
  end
end

-- The namespace's indexes, taken apart.
local function list_indexes(base)
  local indexes = redis.call('HKEYS', base .. ':indexes')
  for at, name in ipairs(indexes) do
    local prefix, fields = parts_of(name)
    indexes[at] = { name = name, prefix = prefix, fields = fields }
  end
  return indexes
end

-- Bring all indexes up to date with the record, which is there or not.
local function update_indexes(indexes, base, record, key, there)
  for _, index in ipairs(indexes) do
    if string.sub(key, 1, #index.prefix) == index.prefix then
      local entry = there and entry_of(record, key, index.fields)
      update_index(base, index.name, index.fields, key, entry)
    end
  end
end
