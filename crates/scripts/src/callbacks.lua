-- Functions of Lua that take long in one instruction.
local globals, refusal = ...
local library, loadstring, type = globals.table, globals.loadstring, type
local sort, foreach, foreachi = library.sort, library.foreach, library.foreachi

local function less(a, b)
  return a < b
end

-- A comparison in C, and a function in C, would run many times without a look at the budget.
library.sort = function(list, by)
  local compare = by
  if by == nil then
    compare = less
  elseif type(by) == "function" then
    compare = function(a, b) return by(a, b) end
  end
  sort(list, compare)
end

local function counted(call)
  if type(call) ~= "function" then return call end
  return function(key, value) return call(key, value) end
end

library.foreach = function(list, call)
  local found = foreach(list, counted(call))
  return found
end

library.foreachi = function(list, call)
  local found = foreachi(list, counted(call))
  return found
end

globals.loadstring = function(text, name)
  local refused = refusal(text)
  if refused then return nil, refused end
  return loadstring(text, name)
end
