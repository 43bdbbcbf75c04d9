-- What is kept of a record besides its fields: see keys.py.
local META = '\0'
local OP_BYTES = 16
