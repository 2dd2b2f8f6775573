-- writes: changes gathered per command and key, and made in few calls at the end.
-- A task moves once per script, so their order does not matter.
local writes = {}

local function later(command, key, first, second)
  local of_command = writes[command]
  if not of_command then
    of_command = {}
    writes[command] = of_command
  end
  local arguments = of_command[key]
  if not arguments then
    arguments = {}
    of_command[key] = arguments
  end
  local size = #arguments
  arguments[size + 1] = first
  if second then
    arguments[size + 2] = second
  end
end

local function write_all()
  for command, of_command in pairs(writes) do
    for key, arguments in pairs(of_command) do
      for from = 1, #arguments, CHUNK do
        redis.call(command, key, unpack(arguments, from, math.min(from + CHUNK - 1, #arguments)))
      end
    end
  end
end
