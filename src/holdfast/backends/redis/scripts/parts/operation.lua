-- What became of an operation on groups or dead letters: the same one again has the first answer.
local function known_answer(base, op)
  local answer = redis.call('GET', base .. ':done:' .. op)
  return answer and tonumber(answer)
end

-- Gives the answer itself, known for so many seconds. After the first write: so it is noted on a
-- full server too.
local function note_answer(base, op, kept, answer)
  redis.call('SET', base .. ':done:' .. op, answer, 'EX', kept)
  return answer
end
