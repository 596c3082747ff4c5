-- kgate.lua lets HAProxy hold a slot of a kgate pool for each request that it
-- passes on. HAProxy stays the proxy; kgate keeps the line. For HAProxy 2.6 or
-- newer, loaded with lua-load-per-thread. haproxy.cfg beside this file shows its
-- use; docs/keep-your-haproxy.md says what it promises.
--
-- A ticket is asked for, awaited, kept and given back by tasks of this script, never
-- by the stream that needs it. HAProxy may drop a stream at any point, and a stream
-- dropped while it asks would leave a ticket behind that nobody knows. So a stream
-- waits in the filter, which looks now and then whether its slot has come and sees the
-- end of every stream, however it ends.

-- HAProxy 2.6.12 crashed with one Lua state and two threads. It did not with
-- lua-load-per-thread, nor with one thread.
if core.thread == 0 then
  error("load kgate.lua with lua-load-per-thread, not with lua-load")
end

local function setting(name, default)
  local value = os.getenv(name)
  return value and value ~= "" and value or default
end

local function number(name, default, least, most)
  local n = tonumber(setting(name, default))
  if not n or n < least or n > most then
    error(string.format("%s is %q, want a number from %d to %d", name, setting(name, default), least, most))
  end
  return n
end

local ttl = number("KGATE_TTL", 10, 2, 600)        -- seconds that a slot outlives this HAProxy
local wait = number("KGATE_WAIT", 60, 0, 86400)    -- seconds that a request waits at most
local cli = setting("KGATE_CLI", nil)              -- HAProxy's own admin socket: to break off a stream
local authorization = ""
local gateways = {}                                -- asked in turn
for host, port in setting("KGATE_ADMIN", "127.0.0.1:9080"):gmatch("([%w.:%[%]]+):(%d+)") do
  table.insert(gateways, {host = (host:gsub("[%[%]]", "")), port = tonumber(port), name = host .. ":" .. port})
end
assert(#gateways > 0, "KGATE_ADMIN has no address such as 10.0.0.1:9080; HAProxy's Lua does not resolve names")
local token_file = setting("KGATE_TOKEN_FILE", nil)
if token_file then
  local file = assert(io.open(token_file))
  authorization = "Authorization: Bearer " .. file:read("l") .. "\r\n"
  file:close()
end

-- Time. HAProxy's clock stands still while the process is stopped, and the time
-- of day can be set back: of the two, the one that says more has passed counts.
local function mark()
  local now = core.now()
  return {now.sec + now.usec / 1e6, os.time()}
end

local function since(then_)
  local now = mark()
  return math.max(now[1] - then_[1], now[2] - then_[2])
end

-- waited is for logs: with the fraction of a second that os.time lacks.
local function waited(s)
  local now = core.now()
  return now.sec + now.usec / 1e6 - s.asked[1]
end

local units = {h = 3600, m = 60, s = 1, ms = 1e-3}
local function seconds(text) -- of "1m29.5s"
  local sum = 0
  for n, unit in text:gmatch("([%d.]+)(%a+)") do sum = sum + n * (units[unit] or 0) end
  return sum
end

-- Jobs wait in queues for tasks. Tasks stay, and look for the next job, because each
-- new one leaks some memory in HAProxy 2.6. More start when all are busy, as many
-- as there are streams at most, and end when they have been idle for long.
local streams = 0 -- how many have asked for a slot and have not ended

local function queue(least)
  local first, last, jobs, tasks, idle = 1, 0, {}, 0, 0
  local work
  local function take()
    local job = jobs[first]
    jobs[first], first = nil, first + 1
    if idle == 0 then -- one is always free: a job may wait for its slot for long
      tasks = tasks + 1
      core.register_task(work)
    end
    local ok, err = pcall(job[1], job[2])
    if not ok then core.log(core.err, "kgate: " .. tostring(err)) end
  end
  work = function()
    local resting = mark()
    while tasks <= least or since(resting) < 30 do
      if first <= last then
        take()
        resting = mark()
      else
        idle = idle + 1
        core.msleep(streams > 0 and 4 or 20)
        idle = idle - 1
      end
    end
    tasks = tasks - 1
  end
  for _ = 1, least do
    tasks = tasks + 1
    core.register_task(work)
  end
  return function(f, s)
    last = last + 1
    jobs[last] = {f, s}
  end
end

local wait_jobs = queue(8) -- a ticket to ask for and to wait for
local care_jobs = queue(8) -- a ticket to keep or to give back: never behind those

-- exchange sends one request to a gateway and returns the status, the body and the
-- Retry-After of its answer.
local function exchange(gateway, method, path, body, within)
  local socket = core.tcp()
  socket:settimeout(within)
  if not socket:connect(gateway.host, gateway.port) then return nil end
  socket:send(string.format("%s /.kgate/tickets%s HTTP/1.0\r\nHost: %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
    method, path, gateway.name, authorization, #(body or ""), body or ""))
  local answer = socket:receive("*a")
  socket:close()
  local head, text = (answer or ""):match("^(HTTP/.-\r\n)\r\n(.*)$")
  if not head then return nil end
  return tonumber(head:match("^HTTP/%d.%d (%d+)")), text, head:match("\r\n[Rr]etry%-[Aa]fter: *(%d+)")
end

-- ask asks the gateway that answered last, and the others if that one cannot tell.
local good = 1
local function ask(method, path, body, within)
  local text, retry_after
  for i = 0, #gateways - 1 do
    local at = (good + i - 1) % #gateways + 1
    local status
    status, text, retry_after = exchange(gateways[at], method, path, body, within)
    if status and status < 500 then
      good = at
      return status, text, retry_after
    end
  end
  return 503, text or "", retry_after
end

local function gone(status) return status == 404 or status == 410 end

-- heard takes in what a gateway says of a stream's ticket.
local function heard(s, body, sent)
  local granted = body:find('"state":"granted"', 1, true) ~= nil
  -- The answer that tells of the grant need not have kept the ticket alive.
  if s.granted or not granted or not s.sent then s.sent = sent end
  s.term = math.min(ttl, seconds(body:match('"left":"([^"]*)"') or ttl .. "s"))
  s.granted, s.fence = granted, body:match('"fence":"([^"]*)"')
end

local function give_back(s)
  for _ = 1, 3 do
    local status = ask("DELETE", "/" .. s.id, nil, ttl / 3)
    if status == 204 or gone(status) then
      s.taken = false
      return
    end
    core.msleep(200)
  end
  core.log(core.warning, "kgate: a slot of " .. s.pool .. " cannot be given back; it is free when its time to live is over")
end

-- quoted is a JSON string.
local function quoted(text)
  return '"' .. text:gsub('[%c"\\\127-\255]', function(c) return string.format("\\u%04x", c:byte()) end) .. '"'
end

local function create(s)
  if s.over then return end
  s.taken = true
  local sent = mark()
  local body = string.format('{"pool":"%s","ttl":"%ds","note":"haproxy","client":%s}', s.pool, ttl, quoted(s.client or ""))
  local status, text, retry_after = ask("POST", "", body, math.min(5, ttl / 2))
  if status ~= 201 then
    s.why = (text:match('"detail":"([^"]*)"') or "no kgate answers") .. " (" .. status .. ")"
    s.retry_after = retry_after
    s.refused = status == 429 and "queue-full" or "unavailable"
    s.taken = false
    return
  end
  heard(s, text, sent)
  s.id = text:match('"id":"([^"]*)"')
  if s.over then give_back(s) end
end

-- break_off ends a stream in HAProxy, whatever it is doing. Lua cannot; the
-- admin socket can.
local function command(line)
  local socket = core.tcp()
  socket:settimeout(2)
  if not socket:connect(cli) then return nil end
  socket:send(line .. "\n")
  return socket
end

local function break_off(s)
  if not cli or not s.number then return end
  local socket = command("show sess all")
  local address
  while socket do
    local line = socket:receive("*l")
    if not line then break end
    local at, id = line:match("^(0x%x+): .- id=(%d+) ")
    if id == s.number then address = at end
  end
  if socket then socket:close() end
  if address and not s.over then
    socket = command("shutdown session " .. address)
    if socket then socket:receive("*a"); socket:close() end
  end
end

local held = {} -- streams with a slot
local function lose(s, why)
  held[s] = nil
  core.log(core.warning, string.format("kgate: a slot of %s is lost (%s); its request %s", s.pool, why,
    cli and s.number and "is broken off" or "goes on"))
  care_jobs(break_off, s)
end

local function renew(s)
  local sent = mark()
  local status, text = ask("PUT", "/" .. s.id, nil, ttl / 6)
  if status == 200 then
    heard(s, text, sent)
  elseif gone(status) and held[s] then
    lose(s, text:match('"reason":"([^"]*)"') or "ended")
  end
  s.renewing = false
end

-- Each slot is renewed three times in its time to live. Clocks may differ in rate by
-- a tenth, so it is lost here after 0.85 of it: that leaves time to break the stream off.
core.register_task(function()
  while true do
    core.msleep(250)
    for s in pairs(held) do
      local age = since(s.sent)
      if age > 0.85 * s.term then
        lose(s, "no kgate renews it")
      elseif age > s.term / 3 and not s.renewing then
        s.renewing = true
        care_jobs(renew, s)
      end
    end
  end
end)

-- await asks for the ticket until it is granted, and returns why not if it is not.
local function await(s)
  while not s.granted and not s.over do
    local left = wait - since(s.asked)
    if left <= 0 then return "timeout" end
    local poll = math.min(left, ttl / 3, 20)
    local sent = mark()
    local status, text = ask("GET", string.format("/%s?wait=%dms", s.id, math.ceil(poll * 1000)), nil, poll + math.min(5, ttl / 3))
    if status == 200 then
      heard(s, text, sent)
    elseif gone(status) then
      return text:find('"reason":"cancelled"', 1, true) and "cancelled" or "lost"
    elseif since(s.sent) > ttl then
      return "unavailable"
    else
      core.msleep(200)
    end
  end
  if not s.over and since(s.sent) > s.term / 2 then renew(s) end -- too little is left to begin with
end

local waiting = {} -- streams in the order in which they came
local function admit(s)
  create(s)
  if s.id and not s.over then s.refused = await(s) end
  if s.id and not s.over and not s.refused then
    s.ready, held[s] = true, true
  end
  for i, w in ipairs(waiting) do
    if w == s then table.remove(waiting, i) break end
  end
end

-- rest is how many milliseconds a stream waits until it looks again: the first in line
-- looks often.
local function rest(s)
  for i, w in ipairs(waiting) do
    if w == s then return 2 + i // 4 end
  end
  return 1
end

local Filter = {id = "kgate", flags = filter.FLT_CFG_FL_HTX}
Filter.__index = Filter
function Filter:new() return setmetatable({channels = 0}, self) end

function Filter:start_analyze() self.channels = self.channels + 1 end

local function refuse(txn, s)
  if s.why then core.log(core.warning, "kgate: " .. s.why) end
  local reply = txn:reply{status = 503, reason = "Service Unavailable"}
  reply:add_header("Retry-After", s.retry_after or "1")
  reply:add_header("Kgate-Refusal", s.refused)
  reply:add_header("Cache-Control", "no-store")
  txn:done(reply)
end

-- tokens returns the elements of a header's lists, in lower case.
local function tokens(values)
  local all = {}
  for _, value in pairs(values or {}) do
    for token in value:lower():gmatch("[^,%s]+") do table.insert(all, token) end
  end
  return all
end

-- disown removes what a client says in kgate's name, and by Connection of kgate's own words
-- to a proxy behind. HAProxy has names in lower case. Many a server takes any byte that is no
-- letter or digit for the hyphen. An Upgrade to another kind of HTTP goes, too: any number of
-- requests would pass behind this one, without a slot.
local other_http = {h2c = true, h2 = true, http = true, tls = true}
local function disown(message)
  local headers = message:get_headers()
  for name in pairs(headers) do
    if name:match("^kgate%W") then message:del_header(name) end
  end
  for _, protocol in ipairs(tokens(headers.upgrade)) do
    if other_http[protocol:match("^[^/]*")] then
      message:del_header("upgrade")
      message:del_header("http2-settings")
    end
  end
  local kept = {}
  for _, name in ipairs(tokens(headers.connection)) do
    if not name:match("^kgate%W") then table.insert(kept, name) end
  end
  if headers.connection then message:set_header("connection", table.concat(kept, ", ")) end
end

local function request(flt, txn, message)
  local s = flt.stream
  if message:get_stline().method == "CONNECT" then -- what follows passes unseen
    txn:done(txn:reply{status = 501, reason = "Not Implemented"})
    return filter.ERROR
  end
  if not s then disown(message) end
  local pool = txn:get_var("txn.kgate_pool")
  if not pool then return filter.CONTINUE end
  if not s then
    s = {pool = pool, client = txn:get_var("txn.kgate_client"), asked = mark(), number = txn:get_var("txn.kgate_stream")}
    flt.stream, streams = s, streams + 1
    if pool:match("^[%w._-]+$") then
      table.insert(waiting, s)
      wait_jobs(admit, s)
    else
      s.why, s.refused = "no pool is named " .. pool, "misconfigured"
    end
  end
  if s.refused then
    refuse(txn, s)
    return filter.ERROR
  elseif not message.channel:may_recv() then
    return filter.ERROR -- the client has left
  elseif not s.ready then
    filter.wake_time(rest(s))
    return filter.WAIT
  elseif not held[s] or since(s.sent) > 0.85 * s.term then
    s.refused = "lost"
    refuse(txn, s)
    return filter.ERROR
  end
  message:set_header("Kgate-Fence", s.fence)
  txn:set_var("txn.kgate_wait", math.floor(waited(s) * 1000))
  return filter.CONTINUE
end

function Filter:http_headers(txn, message)
  if not message:is_resp() then return request(self, txn, message) end
  if tonumber(message:get_stline().code) == 101 then
    -- A filter that does not look at data does not see the end of a WebSocket.
    filter.register_data_filter(self, txn.req)
    filter.register_data_filter(self, txn.res)
  end
  return filter.CONTINUE
end

function Filter:end_analyze()
  local s = self.stream
  if not s then return filter.CONTINUE end
  if not s.over then
    self.channels = self.channels - 1
    if self.channels > 0 then return filter.CONTINUE end
    s.over, held[s], streams = mark(), nil, streams - 1
    if s.id then care_jobs(give_back, s) end
  end
  -- A HAProxy that is replaced ends with its last stream, and does not wait for tasks.
  if s.taken and since(s.over) < ttl and core.get_info().Stopping == 1 then
    filter.wake_time(5)
    return filter.WAIT
  end
  return filter.CONTINUE
end

core.register_filter("kgate", Filter, function(f) return f end)
