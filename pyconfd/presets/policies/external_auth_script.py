"""The script by which HAProxy asks another service whether a request may go on (words of external authentication)."""

from pyconfd.model.rendering import FileKind, OutputFile

SCRIPT = """\
-- Asks a service whether a request may go on.
--
-- http-request lua.external-auth SOCKET    SOCKET: what sockets of this haproxy begin with that lead to the service
--
-- It reads txn.auth, which says what to ask, and sets txn.auth_outcome to "allowed" where the answer is 2xx. It answers
-- requests that are not allowed. Where it fails, it does neither: the line behind it refuses such a request.

local MOST_HEADERS = 128
local MOST_RETURNED_BYTES = 8192
local READ_BODY_BYTES = 4096
local MOST_COOKIES = 4
local FIELDS = {"to", "host", "path", "method", "timeout_ms", "sent", "returned", "sign_in", "redirect"}
-- What belongs to the message, the connection, or is set here.
local OWN = {
    connection = true, ["keep-alive"] = true, ["proxy-connection"] = true, te = true, trailer = true, upgrade = true,
    ["transfer-encoding"] = true, ["content-length"] = true, expect = true, ["http2-settings"] = true, host = true,
    ["x-original-url"] = true, ["x-original-uri"] = true, ["x-original-method"] = true,
    ["x-auth-request-redirect"] = true, ["x-forwarded-for"] = true, ["x-forwarded-host"] = true,
    ["x-forwarded-proto"] = true, ["x-forwarded-uri"] = true, ["x-real-ip"] = true,
}
-- What HAProxy says of a client's certificate, by authorities that whoever asks has chosen: no host of others is told.
local OF_CERTIFICATES = {"x-ssl-", "ssl-client-", "client-cert-"}

local function words(text, separator)
    local found = {}
    for word in text:gmatch("[^" .. separator .. "]+") do
        found[#found + 1] = word
    end
    return found
end

local function set_of(text)
    local found = {}
    for _, name in ipairs(words(text, ",")) do
        found[name] = true
    end
    return found
end

local function escaped(text)
    return (text:gsub("[^A-Za-z0-9%-._~]", function(byte) return string.format("%%%02X", byte:byte()) end))
end

local function expanded(template, variables)
    return (template:gsub("%$([a-z_]+)", variables))
end

-- A "_" is the same as a "-" for many programs.
local function comparable(name)
    return (name:lower():gsub("_", "-"))
end

local function is_of_certificates(known)
    for _, prefix in ipairs(OF_CERTIFICATES) do
        if (known .. "-"):sub(1, #prefix) == prefix then
            return true
        end
    end
    return false
end

local function in_order(values)
    local found, place = {}, 0
    while values[place] do
        found[place + 1] = values[place]
        place = place + 1
    end
    return found
end

local function now_ms()
    local now = core.now()
    return now.sec * 1000 + now.usec / 1000
end

local function proxy_line(txn)
    local source, own = tostring(txn.f:src() or ""), tostring(txn.f:dst() or "")
    if source == "" then
        return "PROXY UNKNOWN\\r\\n"
    end
    local is_v6 = source:find(":", 1, true) ~= nil
    if own == "" or (own:find(":", 1, true) ~= nil) ~= is_v6 then
        own = is_v6 and "::" or "0.0.0.0"
    end
    local ports = string.format("%d %d", txn.f:src_port() or 0, txn.f:dst_port() or 0)
    return string.format("PROXY %s %s %s %s\\r\\n", is_v6 and "TCP6" or "TCP4", source, own, ports)
end

local function question(txn, asked, variables)
    local target = expanded(asked.path, variables)
    if not target:find("^/[\\33-\\126]*$") then
        return nil
    end
    local lines = {
        asked.method .. " " .. target .. " HTTP/1.1",
        "Host: " .. expanded(asked.host, variables),
        "Connection: close",
        "X-Pyconfd-Auth: " .. asked.to,
        "X-Pyconfd-Policy: " .. (txn:get_var("txn.auth_policy") or ""),
        "X-Original-URL: " .. variables.scheme .. "://" .. variables.http_host .. variables.request_uri,
        "X-Original-Method: " .. txn.sf:method(),
        "X-Auth-Request-Redirect: " .. expanded(asked.redirect, variables),
        "X-Forwarded-For: " .. tostring(txn.f:src() or ""),
        "X-Real-IP: " .. tostring(txn.f:src() or ""),
        "X-Forwarded-Proto: " .. variables.scheme,
        "X-Forwarded-Host: " .. variables.http_host,
        "X-Forwarded-Uri: " .. variables.request_uri,
    }
    local sent = asked.sent ~= "*" and set_of(asked.sent)
    for name, values in pairs(txn.http:req_get_headers()) do
        local known = comparable(name)
        local is_own = OWN[known] or known:sub(1, 10) == "x-pyconfd-" or (asked.to == "@" and is_of_certificates(known))
        if not is_own and (not sent or sent[name:lower()]) then
            for _, value in ipairs(in_order(values)) do
                lines[#lines + 1] = name .. ": " .. value
            end
        end
    end
    if asked.method == "POST" then
        lines[#lines + 1] = "Content-Length: 0"
    end
    return table.concat(lines, "\\r\\n") .. "\\r\\n\\r\\n"
end

-- Return the status and headers of the answer, or nil where there is none in time.
local function answer_to(text, address, deadline)
    local socket = core.tcp()
    local function in_time()
        local left = deadline - now_ms()
        if left <= 0 then
            return false
        end
        socket:settimeout(left / 1000)
        return true
    end
    local function head()
        local first = in_time() and socket:receive("*l")
        local status = first and tonumber(first:match("^HTTP/1%.[01] (%d%d%d)"))
        local headers, count = {}, 0
        while status do
            local line = in_time() and socket:receive("*l")
            if not line or count > MOST_HEADERS then
                return nil
            end
            line = line:gsub("\\r$", "")
            if line == "" then
                return status, headers
            end
            local name, value = line:match("^([^:%s]+):%s*(.-)%s*$")
            if not name then
                return nil
            end
            count, name = count + 1, name:lower()
            headers[name] = headers[name] or {}
            table.insert(headers[name], value)
        end
        return nil
    end
    local status, headers
    if in_time() and socket:connect(address) and in_time() and socket:send(text) then
        repeat
            status, headers = head()
        until not status or status >= 200
        -- HAProxy keeps the connection to a pod whose answer it has read to its end.
        local length = status and tonumber((headers["content-length"] or {})[1])
        if length and length > 0 and length <= READ_BODY_BYTES and in_time() then
            socket:receive(length)
        end
    end
    socket:close()
    return status, headers
end

local function refuse(txn, status, headers, text)
    local reply = txn:reply{status = status}
    for name, values in pairs(headers) do
        for _, value in ipairs(values) do
            reply:add_header(name, value)
        end
    end
    reply:add_header("content-type", "text/plain")
    reply:add_header("cache-control", "no-store")
    reply:set_body(text)
    txn:done(reply)
end

-- Only what the service says counts in these headers, and nothing that a client does.
local function clear(txn, names)
    for name in pairs(txn.http:req_get_headers()) do
        if names[comparable(name)] then
            txn.http:req_del_header(name)
        end
    end
end

local function take_over(txn, returned, names, headers)
    local wanted, bytes = {}, 0
    for _, name in ipairs(returned) do
        for _, value in ipairs(headers[name] or {}) do
            bytes = bytes + #name + #value + 4
            wanted[#wanted + 1] = {name, value}
        end
    end
    if bytes > MOST_RETURNED_BYTES then
        return false
    end
    for _, each in ipairs(wanted) do
        txn.http:req_add_header(each[1], each[2])
    end
    -- What there was no room for is not there.
    local count = 0
    for name, values in pairs(txn.http:req_get_headers()) do
        count = count + (names[comparable(name)] and #in_order(values) or 0)
    end
    return count == #wanted
end

core.register_action("external-auth", {"http-req"}, function(txn, socket)
    local asked, text = {}, txn:get_var("txn.auth")
    for place, word in ipairs(words(text, " ")) do
        asked[FIELDS[place]] = word
    end
    local deadline = now_ms() + tonumber(asked.timeout_ms)
    local uri = txn.sf:pathq()
    local variables = {
        host = txn:get_var("txn.host") or "",
        http_host = txn.sf:req_hdr("host") or "",
        scheme = txn.sf:req_hdr("x-forwarded-proto") == "https" and "https" or "http",
        request_uri = uri,
        escaped_request_uri = escaped(uri),
    }
    if not variables.http_host:find("^[A-Za-z0-9._:%[%]-]*$") then
        refuse(txn, 400, {}, "This host is none.\\n")
        return
    end
    local returned, names = words(asked.returned, ","), {}
    for _, name in ipairs(returned) do
        names[comparable(name)] = true
    end
    clear(txn, names)
    local leads_to = "service"
    if asked.to == "@" then
        leads_to = txn:get_var("txn.auth_frontend")
    end
    local question_, status, headers = question(txn, asked, variables), nil, nil
    if question_ and leads_to then
        status, headers = answer_to(proxy_line(txn) .. question_, socket .. leads_to, deadline)
    end
    local cookies = status and headers["set-cookie"] or {}
    if not status or status >= 500 then
        refuse(txn, 503, {}, "Whether this request is allowed could not be asked.\\n")
    elseif status == 401 and asked.sign_in ~= "-" then
        local url = expanded(asked.sign_in, variables)
        if url:find("[^\\33-\\126]") then
            refuse(txn, 500, {}, "The URL to sign in at is none.\\n")
        else
            refuse(txn, 302, {location = {url}, ["set-cookie"] = cookies}, "Sign in.\\n")
        end
    elseif status == 401 or status == 403 then
        local challenges = headers["www-authenticate"] or {}
        refuse(txn, status, {["www-authenticate"] = challenges, ["set-cookie"] = cookies}, "This is not allowed.\\n")
    elseif status > 299 or not take_over(txn, returned, names, headers) then
        refuse(txn, 500, {}, "The answer whether this request is allowed is none.\\n")
    else
        for place = 1, math.min(#cookies, MOST_COOKIES) do
            txn:set_var("txn.auth_cookie" .. place, cookies[place])
        end
        txn:set_var("txn.auth_outcome", "allowed")
    end
end, 1)
"""


def script_file(directory: str) -> OutputFile:
    """Return the script as a file in ``directory``, for ``lua-load``; a new one costs a reload."""
    return OutputFile(FileKind.MAP, f"{directory}/external-auth.lua", SCRIPT)
