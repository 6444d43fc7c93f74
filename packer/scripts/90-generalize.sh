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
fi
rm -rf /var/log/journal/* /var/lib/pyconfd/generations
rm -rf "${PYCONFD_SOURCE:?}" "$PYCONFD_SOURCE.tar"
find /var/log -type f -exec truncate -s 0 {} +
