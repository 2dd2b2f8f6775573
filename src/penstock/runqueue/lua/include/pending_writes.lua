-- pending_writes: collects writes per command and key, and sends them in few calls at the end of the script.
-- A script moves each task once, so the order of the writes does not matter.
local writes = {}

local function defer_write(command, key, first_argument, second_argument)
  local by_key = writes[command]
  if not by_key then
    by_key = {}
    writes[command] = by_key
  end
  local arguments = by_key[key]
  if not arguments then
    arguments = {}
    by_key[key] = arguments
  end
  local size = #arguments
  arguments[size + 1] = first_argument
  if second_argument then
    arguments[size + 2] = second_argument
  end
end

local function flush_writes()
  for command, by_key in pairs(writes) do
    for key, arguments in pairs(by_key) do
      for from = 1, #arguments, CHUNK do
        redis.call(command, key, unpack(arguments, from, math.min(from + CHUNK - 1, #arguments)))
      end
    end
  end
end
