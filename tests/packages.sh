#!/bin/sh
# Installs the Debian packages named as arguments where one of them is missing: as root at once, else it says which.
# Each argument is COMMAND=PACKAGE: the package is wanted when the command cannot be found.
set -eu
PATH="$PATH:/usr/sbin:/sbin"
missing=""
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 || missing="$missing ${pair#*=}"
done
# Debian ships Python without the module that makes virtual environments.
"${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "These Debian packages are missing:$missing" >&2
    echo "Install them and try again:  sudo apt-get install$missing" >&2
    exit 1
fi
echo "Installing Debian packages:$missing"
export DEBIAN_FRONTEND=noninteractive
# A service that the package would start has no business here: the policy file is removed again.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
# A list of words.
# shellcheck disable=SC2086
apt-get install -qq -y --no-install-recommends $missing >/dev/null
