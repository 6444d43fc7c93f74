#!/bin/sh
# The appliance on a Debian 12 machine, without Packer: the same scripts in the same order. As root:
#   make wheelhouse && packer/install.sh
# It may be run again, to upgrade: haproxy and keepalived are not touched, what serves goes on. Settings: see the heads of
# packer/scripts/*.sh. What makes an image of a machine (no machine id, no host keys) is not done here.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
export PYCONFD_SOURCE="$source"
if [ "$(id -u)" != 0 ]; then
    echo "$0: as root, please" >&2
    exit 77
fi
if [ ! -e /etc/haproxy/generated/haproxy.cfg ] && systemctl is-active --quiet haproxy 2>/dev/null &&
    grep -Eqs '^[[:space:]]*(bind|listen)[[:space:]]' /etc/haproxy/haproxy.cfg; then
    echo "$0: haproxy serves /etc/haproxy/haproxy.cfg here. The Debian package (make deb) goes beside it, and you say when it takes over" >&2
    exit 1
fi
for script in 10-packages 20-pyconfd 30-units 40-system 80-manifest; do
    echo "== $script"
    sh "$source/packer/scripts/$script.sh"
done
# What runs gets the new version; what does not is started, and waits for its settings.
systemctl try-restart pyconfd pyconfd-dns pyconfd-vip
systemctl start haproxy pyconfd-vip-config
cat <<'TEXT'

pyconfd is installed. Next:
  /etc/pyconfd/pyconfd.toml                        settings (pyconfd settings --defaults --toml is one to begin with)
  runuser -u pyconfd -- pyconfd preflight          is everything there that it needs?
  systemctl restart haproxy                        only where it ran before: the one moment that ends connections
  systemctl start pyconfd
TEXT
