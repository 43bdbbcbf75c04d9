-- What became of an operation that ended something, for who lost the answer: see keys.py.
local ENDING_MS = 120000 -- longer than anybody repeats

local function ending_of(base, op)
  return base .. ':ended:' .. op
end

-- Notes what it came to. After the first write: so it is noted on a full server too.
local function note_ending(base, op, was_there)
  redis.call('SET', ending_of(base, op), was_there, 'PX', ENDING_MS)
  return was_there
end
