#!/bin/sh
# Users, directories and units. Everything is enabled, and stays inert until /etc/pyconfd/pyconfd.toml is there.
set -eu
source=${PYCONFD_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
units=/etc/systemd/system

install -D -m 644 "$source/systemd/pyconfd.sysusers" /usr/lib/sysusers.d/pyconfd.conf
install -D -m 644 "$source/systemd/pyconfd.tmpfiles" /usr/lib/tmpfiles.d/pyconfd.conf
systemd-sysusers pyconfd.conf
systemd-tmpfiles --create pyconfd.conf

install -D -m 755 -t /opt/pyconfd/libexec "$source/systemd/pyconfd-haproxy-prestart" \
    "$source/systemd/pyconfd-haproxy-reload" "$source/systemd/pyconfd-start-skipped" \
    "$source/systemd/pyconfd-vip-configure" "$source/pyconfd/keepalived/pyconfd-vip-backstop" \
    "$source/pyconfd/keepalived/pyconfd-vip-release" "$source/pyconfd/keepalived/keepalived-failover.sh"
install -m 644 -t "$units" "$source"/systemd/*.service
for unit in haproxy keepalived; do
    install -D -m 644 -t "$units/$unit.service.d" "$source/systemd/$unit.service.d/pyconfd.conf"
done

# Fragments to begin with, where there are none of the operator's.
if ! find /etc/pyconfd -maxdepth 1 \( -name '*.conf' -o -name '*.tmpl' \) | grep -q .; then
    /opt/pyconfd/bin/pyconfd fragments --copy-to /etc/pyconfd >/dev/null
fi

systemctl daemon-reload
systemctl --quiet enable haproxy keepalived pyconfd pyconfd-preflight pyconfd-vip pyconfd-vip-config pyconfd-dns pyconfd-dns-withdraw
