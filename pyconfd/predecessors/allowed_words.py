"""The sections, directives, keywords and samples that text from the cluster may use. What is not here is refused. Pure.

Source: HAProxy's configuration manual, chapters 3 to 5, 2.6 to 3.2. Left out on purpose: everything that runs a
program or code (Lua, SPOE, FastCGI, external checks), reads or writes a file outside the allowed directories, opens a
socket that commands HAProxy, or changes what the process may do.

Sample fetches and converters: what HAProxy 2.6 registers (``haproxy -dKsmp,cnv``) and what the manuals of 2.7 to 3.2
add, without ``env``, ``map*``, ``jwt_verify`` (it reads a key file), ``debug``, the keys of TLS sessions and HAProxy's
own internals. ``sc0_`` to ``sc9_`` stand for ``sc_``.

Sample expressions and log formats are read where and how HAProxy's own parsers read them: ``sample_parse_expr()``
(sample.c), ``make_arg_list()`` (arg.c) and ``parse_logformat_string()`` (log.c) of HAProxy 2.6 to 3.2.
tests/presets/test_allowed_fuzz.py compares them with the haproxy that is installed.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple


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


def _sample_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FETCHES = _sample_words(
    """
accept_date acl always_false always_true avg_queue base base32 base32+src baseq bc_dst bc_dst_port bc_err
bc_err_str bc_glitches bc_http_major bc_rtt bc_rttvar bc_src bc_src_port be_conn be_conn_free be_glitches be_id
be_name be_server_timeout be_sess_rate be_tunnel_timeout bin bool bytes_in bytes_out capture.req.hdr
capture.req.method capture.req.uri capture.req.ver capture.res.hdr capture.res.ver connslots cook cook_cnt
cook_val cookie cur_server_timeout cur_tunnel_timeout date date_us distcc_body distcc_param dst dst_conn
dst_is_local dst_port fc_dst fc_dst_is_local fc_dst_port fc_err fc_err_str fc_fackets fc_glitches fc_http_major
fc_lost fc_pp_authority fc_pp_unique_id fc_rcvd_proxy fc_reordering fc_retrans fc_rtt fc_rttvar fc_sacked fc_src
fc_src_is_local fc_src_port fc_timer.handshake fc_timer.total fc_unacked fcgi.docroot fcgi.index
fe_client_timeout fe_conn fe_defbe fe_id fe_name fe_req_rate fe_sess_rate h1_all_hdrs hdr hdr_cnt hdr_ip hdr_val
http_auth http_auth_bearer http_auth_group http_auth_pass http_auth_type http_auth_user http_first_req int ipv4
ipv6 last_entity meth method nbsrv path pathq payload payload_lv prio_class prio_offset query queue quic_enabled
rand rdp_cookie rdp_cookie_cnt rep_ssl_hello_type req.body req.body_len req.body_param req.body_size req.cook
req.cook_cnt req.cook_val req.fhdr req.fhdr_cnt req.hdr req.hdr_cnt req.hdr_ip req.hdr_names req.hdr_val
req.hdrs req.hdrs_bin req.len req.payload req.payload_lv req.proto_http req.rdp_cookie req.rdp_cookie_cnt
req.ssl_alpn req.ssl_cipherlist req.ssl_ec_ext req.ssl_hello_type req.ssl_keyshare_groups req.ssl_sigalgs
req.ssl_sni req.ssl_st_ext req.ssl_supported_groups req.ssl_ver req.timer.hdr req.timer.idle req.timer.queue
req.timer.tq req.ver req_len req_proto_http req_ssl_hello_type req_ssl_sni req_ssl_ver req_ver request_date
res.body res.body_len res.body_size res.cache_hit res.cache_name res.comp res.comp_algo res.cook res.cook_cnt
res.cook_val res.fhdr res.fhdr_cnt res.hdr res.hdr_cnt res.hdr_ip res.hdr_names res.hdr_val res.hdrs
res.hdrs_bin res.len res.payload res.payload_lv res.ssl_hello_type res.timer.data res.timer.hdr res.ver resp_ver
sc_bytes_in_rate sc_bytes_out_rate sc_clr_gpc sc_clr_gpc0 sc_clr_gpc1 sc_conn_cnt sc_conn_cur sc_conn_rate
sc_get_gpc sc_get_gpc0 sc_get_gpc1 sc_get_gpt sc_get_gpt0 sc_gpc0_rate sc_gpc1_rate sc_gpc_rate sc_http_err_cnt
sc_http_err_rate sc_http_fail_cnt sc_http_fail_rate sc_http_req_cnt sc_http_req_rate sc_inc_gpc sc_inc_gpc0
sc_inc_gpc1 sc_kbytes_in sc_kbytes_out sc_sess_cnt sc_sess_rate sc_tracked sc_trackers scook scook_cnt scook_val
server_status shdr shdr_cnt shdr_ip shdr_val so_id so_name src src_bytes_in_rate src_bytes_out_rate src_clr_gpc
src_clr_gpc0 src_clr_gpc1 src_conn_cnt src_conn_cur src_conn_rate src_get_gpc src_get_gpc0 src_get_gpc1
src_get_gpt src_get_gpt0 src_gpc0_rate src_gpc1_rate src_gpc_rate src_http_err_cnt src_http_err_rate
src_http_fail_cnt src_http_fail_rate src_http_req_cnt src_http_req_rate src_inc_gpc src_inc_gpc0 src_inc_gpc1
src_is_local src_kbytes_in src_kbytes_out src_port src_sess_cnt src_sess_rate src_updt_conn_cnt srv_conn
srv_conn_free srv_id srv_is_up srv_iweight srv_name srv_queue srv_sess_rate srv_uweight srv_weight ssl_bc
ssl_bc_alg_keysize ssl_bc_alpn ssl_bc_cipher ssl_bc_err ssl_bc_err_str ssl_bc_is_resumed ssl_bc_npn
ssl_bc_protocol ssl_bc_session_id ssl_bc_unique_id ssl_bc_use_keysize ssl_c_ca_err ssl_c_ca_err_depth
ssl_c_chain_der ssl_c_der ssl_c_err ssl_c_i_dn ssl_c_key_alg ssl_c_notafter ssl_c_notbefore ssl_c_s_dn
ssl_c_serial ssl_c_sha1 ssl_c_sig_alg ssl_c_used ssl_c_verify ssl_c_version ssl_f_der ssl_f_i_dn ssl_f_key_alg
ssl_f_notafter ssl_f_notbefore ssl_f_s_dn ssl_f_serial ssl_f_sha1 ssl_f_sig_alg ssl_f_version ssl_fc
ssl_fc_alg_keysize ssl_fc_alpn ssl_fc_cipher ssl_fc_cipherlist_bin ssl_fc_cipherlist_hex ssl_fc_cipherlist_str
ssl_fc_cipherlist_xxh ssl_fc_curve ssl_fc_ecformats_bin ssl_fc_eclist_bin ssl_fc_err ssl_fc_err_str
ssl_fc_extlist_bin ssl_fc_has_crt ssl_fc_has_early ssl_fc_has_sni ssl_fc_hsk_err ssl_fc_hsk_err_str
ssl_fc_is_resumed ssl_fc_npn ssl_fc_protocol ssl_fc_protocol_hello_id ssl_fc_session_id ssl_fc_sigalgs_bin
ssl_fc_sni ssl_fc_supported_versions_bin ssl_fc_unique_id ssl_fc_use_keysize ssl_s_chain_der ssl_s_der
ssl_s_i_dn ssl_s_key_alg ssl_s_notafter ssl_s_notbefore ssl_s_s_dn ssl_s_serial ssl_s_sha1 ssl_s_sig_alg
ssl_s_version status stopping str table_avl table_cnt txn.conn_retries txn.id32 txn.redispatched
txn.sess_term_state txn.status txn.timer.total txn.timer.user unique-id url url32 url32+src url_ip url_param
url_port urlp urlp_val uuid var wait_end waiting_entity
"""
)

ACL_KEYWORDS = _sample_words(
    """
base cook hdr http_auth_group method path payload payload_lv req.ssl_ver req_rdp_cookie req_rdp_cookie_cnt req_ssl_sni
req_ssl_ver req_ver resp_ver scook shdr url urlp
"""
)
"""Samples behind which an ACL has no converters in further words, beside those of a suffix (``path_beg``).

Source: ``haproxy -dKacl`` of 2.6 to 3.2.
"""

CONVERTERS = _sample_words(
    """
add add_item aes_gcm_dec and b64dec base64 be2dec be2hex bool bytes capture-req capture-res concat cpl crc32
crc32c cut_crlf digest div djb2 even field fix_is_valid fix_tag_value hex hex2i hmac host_norm host_only htonl
http_date iif in_table ip.fp ipmask is_ip json json_query jwt_header_query jwt_payload_query language le2dec
le2hex length lower ltime ltrim mod mqtt_field_value mqtt_is_valid mul nbsrv neg not odd or param port_only
protobuf regsub reverse rfc7239_field rfc7239_is_site rfc7239_is_valid rfc7239_n2nn rfc7239_n2np rfc7239_nn
rfc7239_np rtrim sdbm secure_memcmp set-var sha1 sha2 srv_queue strcmp sub table_bytes_in_rate
table_bytes_out_rate table_clr_gpc table_conn_cnt table_conn_cur table_conn_rate table_expire table_gpc
table_gpc0 table_gpc0_rate table_gpc1 table_gpc1_rate table_gpc_rate table_gpt table_gpt0 table_http_err_cnt
table_http_err_rate table_http_fail_cnt table_http_fail_rate table_http_req_cnt table_http_req_rate table_idle
table_inc_gpc table_kbytes_in table_kbytes_out table_server_id table_sess_cnt table_sess_rate table_trackers
ub64dec ub64enc ungrpc unset-var upper url_dec url_enc utime word wt6 x509_v_err_str xor xxh3 xxh32 xxh64
"""
)


_NAME = re.compile(r"[A-Za-z0-9._+:-]*")
_ESCAPED_IN_ARGUMENT = frozenset("\\ \"'rnt")
_PERCENTS = re.compile(r"%+")
_BEFORE_EXPRESSION = re.compile(r"(?:\([^)]*\))?(?:\{[^}]*\})?\[")
"""What stands between ``%`` and an expression: a name since 3.0, flags. Each ends at the first closing sign."""


class Expression(NamedTuple):
    """``names`` are the fetch and its converters; ``end`` is where HAProxy stops reading, -1 where it gives up."""

    names: tuple[str, ...]
    end: int


def read_expression(text: str, at: int = 0) -> Expression:
    """Read a fetch with its converters that begins at ``at``."""
    names: list[str] = []
    while True:
        found = _NAME.match(text, at)
        at = found.end() if found else at
        names.append(found[0] if found else "")
        if text[at : at + 1] == "(":
            at = _end_of_arguments(text, at + 1)
        if at < 0 or text[at : at + 1] != ",":
            break
        while text[at : at + 1] == ",":  # HAProxy takes several for one
            at += 1
        if at == len(text):
            break
    return Expression(tuple(names), at)


def _end_of_arguments(text: str, at: int) -> int:
    """Return where the first ``)`` outside quotes ends: HAProxy does not nest."""
    quote = ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            # Of what it does not know, "\)" among them, it keeps the backslash and reads on behind it.
            at += 2 if text[at + 1 : at + 2] in _ESCAPED_IN_ARGUMENT else 1
            continue
        if char in "\"'" and quote in ("", char):
            quote = "" if quote else char
        elif char == ")" and not quote:
            return at + 1
        at += 1
    return -1


def expressions_in_format(text: str) -> Iterator[Expression]:
    """Yield each ``%[...]`` of a log format; its end is -1 where HAProxy would not find the ``]``.

    Every ``%`` that no other one escapes is taken for a beginning: ``%(`` begins a name in 3.0 and is text before.
    """
    for percents in _PERCENTS.finditer(text):
        start = _BEFORE_EXPRESSION.match(text, percents.end()) if len(percents[0]) % 2 else None
        if start is not None:
            found = read_expression(text, start.end())
            yield found if text[found.end : found.end + 1] == "]" else found._replace(end=-1)
