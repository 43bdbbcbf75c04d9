-- What is kept of a record besides its fields: see keys.py.
local META = '\0'
local OP_BYTES = 16
local REMEMBERED = 4000 -- changes: a pipeline has 1,000, and each may bury two that have expired
