-- Functions of Lua that the sandbox narrows. Scripts see this file as no source of an error.
local globals, caught, handler, charge, spoil, libraries = ...
local pcall, xpcall, error, type, setmetatable = pcall, xpcall, error, type, setmetatable
local getfenv, setfenv, loadstring, rawset, next = getfenv, setfenv, loadstring, rawset, next
local byte, concat, find = string.byte, table.concat, string.find
local resume = coroutine.resume
local collect = collectgarbage
local tostring, select, getmetatable = tostring, select, getmetatable
local tonumber = tonumber

local LEVELS_MAX = 200000
local READ_ONLY = "Attempt to modify a readonly table"

-- From what scripts hold to the table behind it.
local behind = {}

local function refuse()
  error(READ_ONLY, 2)
end

local function protect(real)
  local shown = {}
  setmetatable(shown, { __index = real, __newindex = refuse, __metatable = false })
  behind[shown] = real
  return shown
end

local shown_globals = protect(globals)

setmetatable(globals, { __index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end })

local function as_text(ok, ...)
  if ok then return ok, ... end
  local reason = ...
  local kind = type(reason)
  if kind == "userdata" or kind == "string" then
    reason = caught(reason, true)
  elseif kind == "table" then
    local text = reason.err
    if type(text) == "string" or type(text) == "number" then reason = text end
  end
  return false, reason
end

local function as_value(ok, ...)
  if ok then return ok, ... end
  return false, (caught((...), false))
end

globals.pcall = function(...)
  return as_text(pcall(...))
end

globals.xpcall = function(call, handle)
  local function after(ok, ...)
    if ok then return ok, ... end
    return false, select(2, pcall(handle, (caught((...), false))))
  end
  return after(pcall(call))
end

globals.setmetatable = function(value, metatable)
  if behind[value] then error(READ_ONLY, 0) end
  local changed = setmetatable(value, metatable)
  return changed
end

globals.rawset = function(value, key, item)
  if behind[value] then error(READ_ONLY, 0) end
  local changed = rawset(value, key, item)
  return changed
end

globals.getfenv = function(place)
  local found
  if place == nil then
    found = getfenv(2)
  elseif type(place) == "number" and place > 0 then
    found = getfenv(place + 1)
  else
    found = getfenv(place)
  end
  if found == globals then found = shown_globals end
  return found
end

globals.setfenv = function(place, environment)
  if type(place) ~= "function" then
    -- Level 0 is the thread, whose environment later scripts get. Greater levels wrap around.
    place = tonumber(place)
    if not place or not (place >= 1 and place <= LEVELS_MAX) then
      error("'setfenv' cannot change environment of given object", 2)
    end
    place = place + 1
  end
  if getfenv(place) == globals or behind[environment] and environment ~= shown_globals then
    error("'setfenv' cannot change environment of given object", 2)
  end
  spoil()
  local changed = setfenv(place, environment)
  return changed
end

-- A chunk that has the name of this file would be taken for it.
local function chunk_name(name)
  if type(name) == "string" and find(name, "wrappers", 1, true) then return "=?" end
  return name
end

globals.loadstring = function(text, name)
  if type(text) == "string" and byte(text, 1) == 27 then
    return nil, "binary chunks are not allowed"
  end
  charge(type(text) == "string" and #text or 0)
  return loadstring(text, chunk_name(name))
end

globals.load = function(pieces, name)
  local parts, count = {}, 0
  while true do
    local piece = pieces()
    if piece == nil or piece == "" then break end
    count = count + 1
    parts[count] = piece
  end
  return globals.loadstring(concat(parts), name or "=(load)")
end

globals.collectgarbage = function(option, ...)
  if option == nil or option == "collect" or option == "step" then charge(1000000) end
  if option == nil or option == "collect" or option == "step" or option == "count" then
    return collect(option, ...)
  end
  if option == "stop" or option == "restart" or option == "setpause" or option == "setstepmul" then
    return 0
  end
  return collect(option)
end

local strings = globals.string
local scan = strings.scan
strings.scan = nil

local function pass(state, first, last, ...)
  if not first then
    state.at = nil
    return nil
  end
  state.at = last >= first and last + 1 or first + 1
  return ...
end

strings.gmatch = function(text, pattern)
  -- Checks the arguments now, as Lua does.
  scan(text, "", 1)
  scan("", pattern, 1)
  local state = { at = 1 }
  local len = #text
  return function()
    if state.at == nil or state.at > len + 1 then return nil end
    return pass(state, scan(text, pattern, state.at))
  end
end
strings.gfind = strings.gmatch

coroutine.resume = function(...)
  return as_value(resume(...))
end

for name, library in next, libraries do
  globals[name] = protect(library)
end
globals._G = shown_globals
rawset(getmetatable(""), "__metatable", protect({ __index = globals.string }))

local function run(call)
  return xpcall(call, handler)
end

-- Raw writes reach what scripts hold, for the rest of a run.
local function tidy()
  setfenv(0, shown_globals)
  for shown in next, behind do
    local key = next(shown)
    while key ~= nil do
      rawset(shown, key, nil)
      key = next(shown)
    end
  end
end

-- The replacement of `gsub` by a function or a table, with its captures.
local function replace(by, kind, ...)
  if kind == "function" then return pcall(by, ...) end
  return pcall(function(name) return by[name] end, (...))
end

return shown_globals, run, tidy, replace
