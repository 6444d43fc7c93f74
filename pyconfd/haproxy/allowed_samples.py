"""Sample fetches and converters that text from the cluster may use: those that read no file and no environment.

Source: what HAProxy 2.6 registers (``haproxy -dKsmp,cnv``) and what the manuals of 2.7 to 3.2 add, without ``env``,
``map*``, ``jwt_verify`` (it reads a key file), ``debug``, the keys of TLS sessions and HAProxy's own internals.
``sc0_`` to ``sc9_`` stand for ``sc_``.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FETCHES = _words(
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

ACL_KEYWORDS = _words(
    """
base cook hdr http_auth_group method path payload payload_lv req.ssl_ver req_rdp_cookie req_rdp_cookie_cnt req_ssl_sni
req_ssl_ver req_ver resp_ver scook shdr url urlp
"""
)
"""Samples behind which an ACL has no converters in further words, beside those of a suffix (``path_beg``).

Source: ``haproxy -dKacl`` of 2.6 to 3.2.
"""

CONVERTERS = _words(
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
