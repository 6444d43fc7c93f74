"""The sections, directives and keywords that text from the cluster may use. What is not here is refused.

Source: HAProxy's configuration manual, chapters 3 to 5, 2.6 to 3.2. Left out on purpose: everything that runs a
program or code (Lua, SPOE, FastCGI, external checks), reads or writes a file outside the allowed directories, opens a
socket that commands HAProxy, or changes what the process may do.
"""

from collections.abc import Mapping
from types import MappingProxyType


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PROXIES = _words("defaults frontend backend listen")

GLOBAL = _words(
    """
    close-spread-time description hard-stop-after log log-send-hostname log-tag maxcompcpuusage maxcomprate maxconn
    maxconnrate maxpipes maxsessrate maxsslconn maxsslrate maxzlibmem max-spread-checks nbthread node
    ssl-default-bind-ciphers ssl-default-bind-ciphersuites ssl-default-bind-client-sigalgs ssl-default-bind-curves
    ssl-default-bind-options ssl-default-bind-sigalgs ssl-default-server-ciphers ssl-default-server-ciphersuites
    ssl-default-server-client-sigalgs ssl-default-server-curves ssl-default-server-options
    ssl-default-server-sigalgs ssl-skip-self-issued-ca spread-checks
    """
)
"""Beside these ``tune.*`` except :data:`TUNE_REFUSED`, and of ``stats`` only ``timeout`` and ``maxconn``."""

TUNE_REFUSED = ("tune.lua.", "tune.fail-alloc", "tune.ssl.keylog")

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "chroot": "haproxy's unit or your own fragments decide what the process may reach",
        "daemon": "haproxy's unit starts the process",
        "gid": "haproxy's unit starts the process",
        "group": "haproxy's unit starts the process",
        "master-worker": "haproxy's unit starts the process",
        "pidfile": "haproxy's unit starts the process",
        "stats socket": "sockets are the operator's: the shipped 00-runtime.tmpl opens pyconfd's",
        "uid": "haproxy's unit starts the process",
        "user": "haproxy's unit starts the process",
    }
)
"""Directives of ``global`` that templates written for a container carry: left out with a note, so the rest serves."""

PROXY = _words(
    """
    acl backlog balance bind capture clitcpka-cnt clitcpka-idle clitcpka-intvl compression cookie declare
    default-server default_backend description disabled enabled errorfile errorfiles errorloc errorloc302 errorloc303
    filter force-persist fullconn guid hash-balance-factor hash-preserve-affinity hash-type http-after-response
    http-check http-error http-request http-response http-reuse http-send-name-header id ignore-persist log log-format
    log-format-sd error-log-format log-tag max-keep-alive-queue max-session-srv-conns maxconn mode monitor monitor-uri
    option persist rate-limit redirect retries retry-on server server-template srvtcpka-cnt srvtcpka-idle
    srvtcpka-intvl stats stick stick-table tcp-check tcp-request tcp-response timeout unique-id-format
    unique-id-header use-server use_backend
    """
)

OTHER_SECTIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "userlist": _words("group user"),
        "resolvers": _words(
            "accepted_payload_size hold nameserver parse-resolv-conf resolve_retries timeout prefer_family"
        ),
        "cache": _words("max-age max-object-size max-secondary-entries process-vary total-max-size"),
        "http-errors": _words("errorfile"),
    }
)

OPTIONS = _words(
    """
    abortonclose allbackups checkcache clitcpka contstats disable-h2-upgrade dontlog-normal dontlognull forwarded
    forwardfor h1-case-adjust-bogus-client h1-case-adjust-bogus-server http-buffer-request http-drop-request-trailers
    http-drop-response-trailers http-ignore-probes http-keep-alive http-no-delay http-pretend-keepalive
    http-restrict-req-hdr-names http-server-close http-use-proxy-header httpchk httpclose httplog httpslog
    idle-close-on-response independent-streams ldap-check log-health-checks log-separate-errors logasap mysql-check
    nolinger originalto persist pgsql-check prefer-last-server redis-check redispatch smtpchk socket-stats splice-auto
    splice-request splice-response srvtcpka ssl-hello-chk tcp-check tcp-smart-accept tcp-smart-connect tcpka tcplog
    """
)

STATS = _words("auth enable hide-version http-request maxconn realm refresh scope show-desc show-legends show-node uri")
STATS_GLOBAL = _words("maxconn timeout")
FILTERS = _words("bwlim-in bwlim-out cache compression")
MODES = _words("http tcp")

ACTIONS = _words(
    """
    accept add-header allow auth cache-store cache-use capture close del-header deny disable-l7-retry do-resolve
    early-hint expect-netscaler-cip expect-proxy normalize-uri pause redirect reject replace-header replace-path
    replace-pathq replace-uri replace-value return sc-add-gpc sc-inc-gpc sc-inc-gpc0 sc-inc-gpc1 sc-set-gpt
    sc-set-gpt0 set-bandwidth-limit set-dst set-dst-port set-fc-mark set-fc-tos set-bc-mark set-bc-tos set-header
    set-log-level set-mark set-method set-path set-pathq set-priority-class set-priority-offset set-query set-retries
    set-src set-src-port set-status set-timeout set-tos set-uri set-var set-var-fmt silent-drop strict-mode
    switch-mode tarpit track-sc0 track-sc1 track-sc2 unset-var wait-for-body wait-for-handshake
    """
)
"""Of ``use-service`` only ``prometheus-exporter``."""

ACTIONS_ON_SAMPLES: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(
        _words(
            """
            capture do-resolve pause sc-add-gpc sc-set-gpt sc-set-gpt0 set-bc-mark set-bc-tos set-dst set-dst-port
            set-fc-mark set-fc-tos set-mark set-priority-class set-priority-offset set-retries set-src set-src-port
            set-tos set-var track-sc0 track-sc1 track-sc2
            """
        ),
        0,
    )
    | {"set-timeout": 1, "set-bandwidth-limit": 1}
)
"""Actions that take a sample expression, and how many words stand before it."""

BEFORE_SAMPLES = _words("limit period")
BEFORE_VALUES = _words("id len min-size table")
"""Words between expressions that stand in words of their own, and what follows them."""

RULES: Mapping[str, int] = MappingProxyType(
    {"http-request": 1, "http-response": 1, "http-after-response": 1, "tcp-request": 2, "tcp-response": 2}
)
"""Where the action stands in a rule."""

TCP_STAGES = _words("connection content session")

CERTIFICATE = -1
"""In place of a number of arguments: one path of a certificate or an authority."""
ADDRESS = -2
"""One network address."""
EXPRESSION = -3
"""One sample expression."""

_TLS_FLAGS = _words(
    """
    allow-0rtt force-sslv3 force-tlsv10 force-tlsv11 force-tlsv12 force-tlsv13 no-sslv3 no-tls-tickets no-tlsv10
    no-tlsv11 no-tlsv12 no-tlsv13 ssl
    """
)
_TLS_VALUES = _words(
    "alpn ciphers ciphersuites client-sigalgs curves ecdhe npn proto sigalgs ssl-max-ver ssl-min-ver verify"
)

BIND: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(_TLS_FLAGS, 0)
    | dict.fromkeys(_TLS_VALUES, 1)
    | dict.fromkeys(_words("ca-file ca-verify-file crl-file crt crt-list tls-ticket-keys"), CERTIFICATE)
    | dict.fromkeys(_words("accept-proxy defer-accept no-ca-names prefer-client-ciphers strict-sni tfo v4v6 v6only"), 0)
    | dict.fromkeys(
        _words(
            """accept-netscaler-cip backlog ca-ignore-err crt-ignore-err default-crt id interface maxconn mss name
            nbconn shards tcp-ut thread"""
        ),
        1,
    )
    | {"default-crt": CERTIFICATE}
)
"""Keywords of ``bind`` and how many arguments each has."""

SERVER: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(_TLS_FLAGS, 0)
    | dict.fromkeys(_TLS_VALUES, 1)
    | dict.fromkeys(_words("ca-file crl-file crt"), CERTIFICATE)
    | {"addr": ADDRESS, "sni": EXPRESSION, "pool-conn-name": EXPRESSION}
    | dict.fromkeys(
        _words(
            """
            backup check check-send-proxy check-ssl disabled enabled no-backup no-check no-check-send-proxy
            no-check-ssl no-send-proxy no-send-proxy-v2 no-ssl no-ssl-reuse no-tfo non-stick send-proxy send-proxy-v2
            send-proxy-v2-ssl send-proxy-v2-ssl-cn ssl-reuse stick tfo tls-tickets
            """
        ),
        0,
    )
    | dict.fromkeys(
        _words(
            """
            check-alpn check-proto check-reuse-pool check-sni cookie downinter error-limit fall fastinter guid
            hash-key id init-addr init-state inter log-bufsize log-proto max-reuse maxconn maxqueue minconn observe
            on-error on-marked-down on-marked-up pool-low-conn pool-max-conn pool-purge-delay port proxy-v2-options
            redir resolve-net resolve-opts resolve-prefer resolvers rise shard slowstart strict-maxconn tcp-ut track
            verifyhost weight ws
            """
        ),
        1,
    )
    | {"strict-maxconn": 0, "check-reuse-pool": 0}
)
"""Keywords of ``server`` and how many arguments each has."""

ADDRESS_FAMILIES = _words("ipv4 ipv6 quic4 quic6 tcp tcp4 tcp6 udp udp4 udp6")
"""What may stand before ``@``; UNIX sockets, inherited descriptors, rings and reverse connections may not."""
