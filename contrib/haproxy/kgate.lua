-- kgate.lua lets HAProxy hold a slot of a kgate pool for each request that it
-- passes on. HAProxy stays the proxy; kgate keeps the line. For HAProxy 2.6 or
-- newer, loaded with lua-load (not lua-load-per-thread). haproxy.cfg beside this
-- file shows its use; docs/keep-your-haproxy.md says what it promises.
--
-- A ticket is asked for, kept and given back by tasks of this script, never by
-- the stream that needs it: HAProxy may drop a stream at any point, and a stream
-- that is dropped while it asks would leave a ticket behind that nobody knows.
-- The filter sees the end of every stream, however it ends.

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
local headers = {["content-type"] = {"application/json"}}
local gateways = {}                                -- base URLs, asked in turn
for url in setting("KGATE_ADMIN", "http://127.0.0.1:9080"):gmatch("[^%s,]+") do
  table.insert(gateways, (url:gsub("/$", "")))
end
local token_file = setting("KGATE_TOKEN_FILE", nil)
if token_file then
  local file = assert(io.open(token_file))
  headers["authorization"] = {"Bearer " .. file:read("l")}
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

local units = {h = 3600, m = 60, s = 1, ms = 1e-3}
local function seconds(text) -- of "1m29.5s"
  local sum = 0
  for n, unit in text:gmatch("([%d.]+)(%a+)") do sum = sum + n * (units[unit] or 0) end
  return sum
end

-- Jobs wait in queues for tasks that were started with HAProxy: a task for each
-- job would leak memory in HAProxy 2.6. A queue holds at most a few jobs for each
-- stream, so it is as bounded as maxconn.
local streams = {} -- by number
local active = 0   -- how many of them have asked for a slot

local function queue(workers)
  local first, last, jobs = 1, 0, {}
  local function work()
    while true do
      if first > last then
        core.msleep(active > 0 and 4 or 20)
      else
        local job = jobs[first]
        jobs[first], first = nil, first + 1
        local ok, err = pcall(job[1], job[2])
        if not ok then core.log(core.err, "kgate: " .. tostring(err)) end
      end
    end
  end
  for _ = 1, workers do core.register_task(work) end
  return function(f, s)
    last = last + 1
    jobs[last] = {f, s}
  end
end

local new_jobs = queue(8)  -- tickets to ask for
local care_jobs = queue(8) -- tickets to keep and give back: never behind those

-- ask sends a request about tickets to the gateway that answered last, and to the
-- others if that one cannot tell.
local good = 1
local function ask(method, path, body, within)
  local answer
  for i = 0, #gateways - 1 do
    local at = (good + i - 1) % #gateways + 1
    local client = core.httpclient()
    answer = client[method](client, {
      url = gateways[at] .. "/.kgate/tickets" .. path,
      headers = headers, body = body, timeout = math.ceil(within * 1000),
    })
    if answer and answer.status and answer.status >= 200 and answer.status < 500 then
      good = at
      return answer.status, answer.body or "", answer.headers or {}
    end
  end
  return 503, answer and answer.body or "", answer and answer.headers or {}
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
    local status = ask("delete", "/" .. s.id, nil, ttl / 3)
    if status == 204 or gone(status) then return end
    core.msleep(200)
  end
  core.log(core.warning, "kgate: a slot of " .. s.pool .. " cannot be given back; it is free when its time to live is over")
end

local function create(s)
  if s.over then return end
  local sent = mark()
  local body = string.format('{"pool":"%s","ttl":"%ds","note":"haproxy"}', s.pool, ttl)
  local status, text, fields = ask("post", "", body, math.min(5, ttl / 2))
  if status ~= 201 then
    s.why = (text:match('"detail":"([^"]*)"') or "no kgate answers") .. " (" .. status .. ")"
    s.retry_after = fields["retry-after"] and fields["retry-after"][0]
    s.refused = status == 429 and "queue-full" or "unavailable"
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
  local status, text = ask("put", "/" .. s.id, nil, ttl / 6)
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

-- The filter numbers streams and sees them end.
local Filter = {id = "kgate", flags = filter.FLT_CFG_FL_HTX}
Filter.__index = Filter
function Filter:new() return setmetatable({channels = 0}, self) end

local count = 0
function Filter:start_analyze(txn)
  self.channels = self.channels + 1
  if self.stream then return end
  count = count + 1
  self.stream, self.key = {}, count
  streams[count] = self.stream
  txn:set_var("txn.kgate", count)
end

-- A filter that does not look at data does not see the end of a WebSocket.
function Filter:http_headers(txn, message)
  if message:is_resp() and tonumber(message:get_stline().code) == 101 then
    filter.register_data_filter(self, txn.req)
    filter.register_data_filter(self, txn.res)
  end
end

function Filter:end_analyze()
  self.channels = self.channels - 1
  local s = self.stream
  if self.channels > 0 or s.over then return end
  s.over = true
  streams[self.key], held[s] = nil, nil
  if s.pool then active = active - 1 end
  if s.id then care_jobs(give_back, s) end
end

core.register_filter("kgate", Filter, function(f) return f end)

local function refuse(txn, why, retry_after)
  local reply = txn:reply{status = 503, reason = "Service Unavailable"}
  reply:add_header("Retry-After", retry_after or "1")
  reply:add_header("Kgate-Refusal", why)
  reply:add_header("Cache-Control", "no-store")
  txn:done(reply)
end

-- await asks for the ticket until it is granted, and returns why not if it is not.
local function await(s)
  while not s.granted do
    local left = wait - since(s.asked)
    if left <= 0 then return "timeout" end
    local poll = math.min(left, ttl / 3, 20)
    local sent = mark()
    local status, text = ask("get", string.format("/%s?wait=%dms", s.id, math.ceil(poll * 1000)), nil, poll + math.min(5, ttl / 3))
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
  if since(s.sent) > s.term / 2 then renew(s) end -- too little is left to begin with
  if since(s.sent) > s.term / 2 then return "unavailable" end
end

core.register_action("kgate", {"http-req"}, function(txn, pool)
  local s = streams[txn:get_var("txn.kgate")]
  if not s or not pool:match("^[%w._-]+$") or s.pool and s.pool ~= pool then
    core.log(core.err, s and "kgate: one request, one pool: http-request lua.kgate NAME" or 'kgate: "filter lua.kgate" is missing beside "http-request lua.kgate"')
    return refuse(txn, "misconfigured")
  end
  if s.pool then return end
  s.pool, s.asked, s.number = pool, mark(), txn:get_var("txn.kgate_stream")
  active = active + 1
  new_jobs(create, s)
  repeat core.msleep(1) until s.id or s.refused
  local refused = s.refused or await(s)
  if refused then
    if s.why then core.log(core.warning, "kgate: " .. s.why) end
    return refuse(txn, refused, s.retry_after)
  end
  held[s] = true
  txn:set_var("txn.kgate_fence", s.fence)
  txn:set_var("txn.kgate_wait", math.floor(since(s.asked) * 1000))
end, 1)
