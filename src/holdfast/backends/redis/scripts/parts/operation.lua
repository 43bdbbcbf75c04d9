-- What became of an operation on groups or dead letters: the same one again has the first answer.
local OPERATION_MS = 86400000 -- OPERATION_SECS of facets/transport.py

local function known_answer(base, op)
  local answer = redis.call('GET', base .. ':done:' .. op)
  return answer and tonumber(answer)
end

-- Gives the answer itself. After the first write: so it is noted on a full server too.
local function note_answer(base, op, answer)
  redis.call('SET', base .. ':done:' .. op, answer, 'PX', OPERATION_MS)
  return answer
end
