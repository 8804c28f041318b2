-- SPDX-License-Identifier: Apache-2.0
-- Tables, closures, strings and coroutines in Lua: churn.lua SIZE (rounds). It has its own random
-- numbers, so that every version of Lua prints the same, and avoids pairs(), whose order may vary.
local state = 20261120
local function random(limit)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % limit + 1
end

local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end

local function count(node)
  if node[1] == nil then return 1 end
  return 1 + count(node[1]) + count(node[2])
end

local kept, closures = {}, {}
for round = 1, tonumber(arg[1]) do
  local nodes = count(tree(13))
  local words = {}
  for i = 1, 20000 do
    words[i] = "word " .. random(5000) .. string.rep("x", random(40))
  end
  local text = table.concat(words, " ")
  local vowels = select(2, text:gsub("o", "0"))
  for i = 1, 8000 do
    local key = random(30000)
    kept[key] = { key = key, name = words[i], list = { i, i + 1, { i } } }
    closures[random(5000)] = function() return kept[key].name, i end
  end
  local steps = coroutine.wrap(function()
    for i = 1, 2000 do coroutine.yield({ i }) end
  end)
  local sum = 0
  for _ = 1, 2000 do sum = sum + steps()[1] end
  table.sort(words)
  print(round, nodes, #text, vowels, sum, words[1], words[#words])
end
