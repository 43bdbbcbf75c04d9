-- Records as a put leaves them: all fields in one value, see keys.py.

-- The fields and values that are packed behind what is ours, one after the other, and the value
-- of each field; nil if they are fields of the hash. A map of text to bytes in MessagePack, which
-- the server's own reader does not know: bytes are newer than it.
local function unpack_fields(meta)
  local at = string.match(meta, '^%d+;0;%d+;%d+;()', OP_BYTES + 1)
  if not at then
    return nil
  end
  at = at + (string.byte(meta, at) == 0xde and 3 or 1) -- how many there are
  local words, values = {}, {}
  while at <= #meta do
    local kind, high, low = string.byte(meta, at, at + 2)
    local size
    if kind >= 0xa0 and kind <= 0xbf then -- short text
      size, at = kind - 0xa0, at + 1
    elseif kind == 0xd9 or kind == 0xc4 then -- text, bytes up to 255
      size, at = high, at + 2
    else -- 0xda, 0xc5: up to 65,535
      size, at = high * 256 + low, at + 3
    end
    words[#words + 1] = string.sub(meta, at, at + size - 1)
    at = at + size
  end
  for word = 1, #words, 2 do
    values[words[word]] = words[word + 1]
  end
  return words, values
end
