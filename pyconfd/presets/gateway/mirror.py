"""The script by which HAProxy sends copies of requests to other servers (the filter RequestMirror)."""

from pyconfd.model.rendering import FileKind, OutputFile

SCRIPT = """\
-- Sends copies of requests to other servers, beside the requests themselves. What comes back is not looked at.
--
-- http-request lua.mirror ADDRESS SECTION    ADDRESS: a socket of this haproxy, whose frontend goes by X-Pyconfd-Mirror

local MOST_AT_ONCE = 256
local TIMEOUT_MS = 10000
local METHODS = {GET = "get", HEAD = "head", POST = "post", PUT = "put", DELETE = "delete"}
local OF_CONNECTION = {
    connection = true, upgrade = true, ["content-length"] = true, ["transfer-encoding"] = true,
}

local under_way = 0

local function headers_of(request)
    local found = {}
    for name, values in pairs(request:req_get_headers()) do
        if not OF_CONNECTION[name] then
            found[name] = {}
            local place = 0
            while values[place] do
                found[name][place + 1] = values[place]
                place = place + 1
            end
        end
    end
    return found
end

core.register_action("mirror", {"http-req"}, function(txn, address, section)
    local method = METHODS[txn.sf:method()]
    local length, body = tonumber(txn.sf:req_hdr("content-length")) or 0, txn.sf:req_body()
    -- A body that is longer than a buffer, or of a length that is not known yet, is not all here.
    if under_way >= MOST_AT_ONCE or not method or length ~= #body then
        return
    end
    local headers = headers_of(txn.http)
    headers["x-pyconfd-mirror"] = {section}
    local copy = {url = "http://mirror" .. txn.sf:pathq(), headers = headers, dst = address, timeout = TIMEOUT_MS}
    if #body > 0 then
        copy.body = body
    end
    under_way = under_way + 1
    core.register_task(function()
        -- A client belongs to the task that makes it.
        local client = core.httpclient()
        pcall(client[method], client, copy)
        under_way = under_way - 1
    end)
end, 2)
"""


def script_file(directory: str) -> OutputFile:
    """Return the script as a file in ``directory``, for ``lua-load``; a new one costs a reload."""
    return OutputFile(FileKind.MAP, f"{directory}/mirror.lua", SCRIPT)
