#!/bin/sh
# The Debian packages of the appliance. What is installed already stays at its version: a new haproxy or keepalived is
# never a side effect of this (haproxy's package reloads it, keepalived's restarts it).
set -eu
export DEBIAN_FRONTEND=noninteractive

installed() {
    dpkg-query --show --showformat='${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

wanted="haproxy keepalived nftables iproute2 procps python3 python3-venv ca-certificates openssh-server cloud-init unattended-upgrades"
# One keeper of the time is enough, and the cloud's own image knows best which.
installed chrony || installed ntpsec || wanted="$wanted systemd-timesyncd"

missing=""
for package in $wanted; do
    installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

# haproxy starts with its own units' drop-ins, or not at all.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
# A cloud's first boot may still be at it.
apt="apt-get -q -o DPkg::Lock::Timeout=300"
$apt update
# shellcheck disable=SC2086
$apt install -y --no-install-recommends --no-upgrade $missing
