"""The section of publish and consume."""

from dataclasses import dataclass
from typing import Annotated

from pyconfd.settings.endpoints import etcd_endpoint
from pyconfd.settings.kinds import Count, Listing, PathText, Seconds, Text
from pyconfd.settings.setting import Setting

_FILE = PathText()
_WAIT = Seconds()
_KEY_PREFIX = Text(what="a prefix of keys, like /pyconfd/", optional=False)


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """``[etcd]``: where ``pyconfd publish`` puts the rendering and ``pyconfd consume`` takes it from."""

    endpoints: Annotated[
        tuple[str, ...],
        Setting(
            "URLs of etcd, tried in order; the first that answers is used",
            Listing(etcd_endpoint, metavar="URL,..."),
            also=("--etcd-host",),
        ),
    ] = ("http://127.0.0.1:2379",)
    path: Annotated[str, Setting("prefix of pyconfd's keys in etcd", _KEY_PREFIX)] = "/pyconfd/"
    ca: Annotated[
        str,
        Setting(
            "CA file that etcd's certificates are verified with",
            _FILE,
            also=("--etcd-ca-file",),
            empty="the system's",
        ),
    ] = ""
    cert: Annotated[
        str, Setting("client certificate for etcd", _FILE, also=("--etcd-client-cert-file",), empty="none")
    ] = ""
    key: Annotated[
        str,
        Setting("key of the client certificate for etcd", _FILE, also=("--etcd-client-key-file",), empty="none"),
    ] = ""
    user: Annotated[str, Setting("user name in etcd", Text(), empty="none")] = ""
    password_file: Annotated[
        str, Setting("file with the password of that user; read at each login", _FILE, empty="none")
    ] = ""
    timeout_s: Annotated[float, Setting("longest silence of etcd before it counts as dead", _WAIT)] = 5.0
    lease_s: Annotated[
        float, Setting("a producer that is silent for so long is replaced by the next", Seconds(least=2, above=False))
    ] = 15.0
    poll_s: Annotated[float, Setting("etcd is read this often, whatever a watch says", _WAIT)] = 30.0
    keep: Annotated[int, Setting("published generations kept in etcd", Count(2, 100))] = 5
