#!/bin/sh
# Kernel, limits, journal, time and updates.
#   PYCONFD_MAX_CONNECTIONS   clients at the same time, for which haproxy gets files (100000)
#   PYCONFD_ACCESS_LOG        journal, or none: only warnings and errors of haproxy are kept (journal)
#   PYCONFD_JOURNAL_SIZE      what the journal may take of the disk (1G)
set -eu
source=${PYCONFD_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
files=$source/packer/files
connections=${PYCONFD_MAX_CONNECTIONS:-100000}
drop_ins=/etc/systemd/system/haproxy.service.d

install -D -m 644 "$files/sysctl.conf" /etc/sysctl.d/60-pyconfd.conf
# In a container some of it belongs to the host.
sysctl --quiet --load=/etc/sysctl.d/60-pyconfd.conf || true

# A connection has two ends; the rest is for listeners, health checks, and the connections of a former worker.
install -d "$drop_ins"
printf '# Written by packer/scripts/40-system.sh for %s clients at the same time.\n[Service]\nLimitNOFILE=%s\n' \
    "$connections" $((connections * 2 + connections / 10 + 1024)) >"$drop_ins/limits.conf"
case ${PYCONFD_ACCESS_LOG:-journal} in
journal) install -m 644 "$files/access-log-journal.conf" "$drop_ins/access-log.conf" ;;
none) install -m 644 "$files/access-log-none.conf" "$drop_ins/access-log.conf" ;;
*)
    echo "$0: PYCONFD_ACCESS_LOG must be journal or none, not $PYCONFD_ACCESS_LOG" >&2
    exit 64
    ;;
esac

# The journal rotates by itself; this says how much of it is kept.
install -d /etc/systemd/journald.conf.d
printf '# Written by packer/scripts/40-system.sh.\n[Journal]\nStorage=persistent\nSystemMaxUse=%s\n' \
    "${PYCONFD_JOURNAL_SIZE:-1G}" >/etc/systemd/journald.conf.d/pyconfd.conf

install -D -m 644 "$files/apt-unattended.conf" /etc/apt/apt.conf.d/52pyconfd
install -m 644 -t /etc/systemd/system "$files/ssh-host-keys.service"
systemctl daemon-reload
systemctl --quiet enable ssh-host-keys
