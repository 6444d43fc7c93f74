#!/bin/sh
# Takes out what must not be the same on two machines. Only for images: not part of install.sh.
#   PYCONFD_GENERALIZE    auto: not with Packer's null builder, whose machine goes on living; always; never (auto)
set -eu
case ${PYCONFD_GENERALIZE:-auto} in
always) ;;
never) exit 0 ;;
auto) [ "${PACKER_BUILDER_TYPE:-}" != null ] || exit 0 ;;
*)
    echo "$0: PYCONFD_GENERALIZE must be auto, always or never, not $PYCONFD_GENERALIZE" >&2
    exit 64
    ;;
esac

# These two write when the machine is stopped, after this.
systemctl stop systemd-random-seed.service || true
journalctl --relinquish-var || true

apt-get -q clean
rm -rf /var/lib/apt/lists/*
# Empty, not absent: systemd makes a new one at the first boot, also where /etc is mounted read-only at first.
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed /var/lib/systemd/credential.secret
rm -f /etc/ssh/ssh_host_*
# The access that Packer used, and the traces of it.
rm -f /root/.ssh/authorized_keys /root/.bash_history /home/*/.ssh/authorized_keys /home/*/.bash_history
if command -v cloud-init >/dev/null; then
    cloud-init clean --logs --seed
    # The network of this machine, by its hardware address; made anew where there is a data source.
    rm -f /etc/netplan/50-cloud-init.yaml /etc/network/interfaces.d/50-cloud-init /etc/systemd/network/10-cloud-init-*
fi
# What pyconfd and haproxy did here: history, names, certificates out of a cluster. The directories stay.
systemctl stop pyconfd pyconfd-dns pyconfd-vip 2>/dev/null || true
for folder in /var/lib/pyconfd /var/lib/pyconfd-vip /etc/haproxy/generated /var/log/journal /var/lib/dhcp; do
    [ ! -d "$folder" ] || find "$folder" -mindepth 1 -delete
done
if head -n 5 /etc/keepalived/keepalived.conf 2>/dev/null | grep -qF 'Written by "pyconfd vip config"'; then
    rm -f /etc/keepalived/keepalived.conf
fi
if [ -n "${PYCONFD_SOURCE:-}" ]; then
    rm -rf "$PYCONFD_SOURCE" "$PYCONFD_SOURCE.tar"
fi
find /var/log -type f -exec truncate -s 0 {} +
