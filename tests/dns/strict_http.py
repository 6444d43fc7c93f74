"""The strict Route 53 over HTTP, in the XML that boto3 speaks; pages hold ``page`` record sets."""

import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET

from pyconfd.dns.records import Policy, RecordAction, RecordChange, RecordSet, RefusedBatchError, Zone, normalised
from pyconfd.errors import RejectedInput
from tests.dns.strict import StrictRoute53

XMLNS = "https://route53.amazonaws.com/doc/2013-04-01/"


class StrictServer:
    """Serves one provider, by default on a port of the loopback."""

    def __init__(self, provider: StrictRoute53, page: int = 300, *, host: str = "127.0.0.1") -> None:
        self.provider = provider
        self.page = page
        self._server = ThreadingHTTPServer((host, 0), type("Handler", (_Handler,), {"of": self}))
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _element(name: str, *children: ET.Element, text: object = None) -> ET.Element:
    found = ET.Element(name)
    found.extend(children)
    found.text = None if text is None else str(text)
    return found


def _as_xml(record: RecordSet) -> ET.Element:
    fields: dict[str, object] = {"Name": record.name.replace("*", "\\052"), "Type": record.type}
    fields |= {"SetIdentifier": record.identifier} if record.identifier else {}
    fields |= {} if record.weight is None else {"Weight": record.weight}
    fields |= {"MultiValueAnswer": "true"} if record.policy is Policy.MULTIVALUE else {}
    fields |= {"Failover": "PRIMARY"} if record.policy is Policy.OTHER else {}
    children = [_element(key, text=value) for key, value in fields.items()]
    if record.alias:
        parts = {"HostedZoneId": "Z2", "DNSName": "elb.example.net.", "EvaluateTargetHealth": "false"}
        children.append(_element("AliasTarget", *(_element(key, text=value) for key, value in parts.items())))
    else:
        values = [_element("ResourceRecord", _element("Value", text=value)) for value in record.values]
        children += [_element("TTL", text=record.ttl_s), _element("ResourceRecords", *values)]
    if record.health_check_id:
        children.append(_element("HealthCheckId", text=record.health_check_id))
    return _element("ResourceRecordSet", *children)


def _of_xml(item: ET.Element) -> RecordSet:
    def text(name: str) -> str:
        return item.findtext(f"{{{XMLNS}}}{name}") or ""

    values = tuple(sorted(value.text or "" for value in item.iter(f"{{{XMLNS}}}Value")))
    weight = int(text("Weight")) if text("Weight") else None
    policy = Policy.SIMPLE if weight is None else Policy.WEIGHTED
    policy = Policy.MULTIVALUE if text("MultiValueAnswer") == "true" else policy
    identifier, health = text("SetIdentifier"), text("HealthCheckId")
    return RecordSet(
        normalised(text("Name")), text("Type"), int(text("TTL")), values, policy, identifier, weight, health
    )


def _sorted_as(record: RecordSet) -> tuple[str, str, str]:
    return ".".join(reversed(record.name.rstrip(".").split("."))) + ".", record.type, record.identifier


class _Handler(BaseHTTPRequestHandler):
    """Answers for the :class:`StrictServer` that subclasses name as ``of``."""

    of: ClassVar[StrictServer]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        steps = unquote(parts.path).strip("/").split("/")
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if len(steps) == 2:
            self._reply(200, _zones(self.of.provider.zones()))
            return
        try:
            self.of.provider.records(steps[2], "")
        except RejectedInput as error:
            self._error(404, "NoSuchHostedZone", str(error))
        else:
            self._reply(200, _listed(self.of, steps[2], query))

    def do_POST(self) -> None:
        body = ET.fromstring(self.rfile.read(int(self.headers["Content-Length"])))
        changes = tuple(
            RecordChange(RecordAction(item.findtext(f"{{{XMLNS}}}Action") or ""), _of_xml(item[1]))
            for item in body.iter(f"{{{XMLNS}}}Change")
        )
        zone_id = unquote(self.path).strip("/").split("/")[2]
        try:
            self.of.provider.change(zone_id, changes)
        except RefusedBatchError as error:
            self._error(400, "InvalidChangeBatch", str(error))
        except RejectedInput as error:
            self._error(404, "NoSuchHostedZone", str(error))
        else:
            fields = {"Id": "/change/C1", "Status": "PENDING", "SubmittedAt": "2026-01-01T00:00:00Z"}
            info = _element("ChangeInfo", *(_element(key, text=value) for key, value in fields.items()))
            self._reply(200, _element("ChangeResourceRecordSetsResponse", info))

    def _error(self, status: int, code: str, text: str) -> None:
        fields = {"Type": "Sender", "Code": code, "Message": text}
        error = _element("Error", *(_element(key, text=value) for key, value in fields.items()))
        self._reply(status, _element("ErrorResponse", error, _element("RequestId", text="1")))

    def _reply(self, status: int, document: ET.Element) -> None:
        document.set("xmlns", XMLNS)
        content = ET.tostring(document, encoding="utf-8", xml_declaration=True)
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


def _zones(zones: Iterable[Zone]) -> ET.Element:
    listed = [
        _element(
            "HostedZone",
            _element("Id", text=f"/hostedzone/{zone.zone_id}"),
            _element("Name", text=zone.name),
            _element("CallerReference", text="1"),
            _element("Config", _element("PrivateZone", text=str(zone.private).lower())),
        )
        for zone in zones
    ]
    tail = [_element("IsTruncated", text="false"), _element("MaxItems", text=100), _element("Marker", text="")]
    return _element("ListHostedZonesResponse", _element("HostedZones", *listed), *tail)


def _listed(server: StrictServer, zone_id: str, query: dict[str, str]) -> ET.Element:
    begin = ".".join(reversed(normalised(query.get("name", "")).rstrip(".").split("."))) + "."
    start = (begin, query.get("type", ""), query.get("identifier", ""))
    every = sorted(server.provider.everything(zone_id), key=_sorted_as)
    found = [item for item in every if _sorted_as(item) >= start]
    page, following = found[: server.page], found[server.page : server.page + 1]
    tail = [_element("IsTruncated", text=str(bool(following)).lower()), _element("MaxItems", text=300)]
    for item in following:
        tail += [_element("NextRecordName", text=item.name), _element("NextRecordType", text=item.type)]
        tail += [_element("NextRecordIdentifier", text=item.identifier)] if item.identifier else []
    sets = _element("ResourceRecordSets", *map(_as_xml, page))
    return _element("ListResourceRecordSetsResponse", sets, *tail)
