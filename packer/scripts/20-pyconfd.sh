#!/bin/sh
# pyconfd into /opt/pyconfd, from the wheelhouse alone: nothing is fetched, and each file must have its hash.
set -eu
source=${PYCONFD_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
wheels=$source/dist/wheelhouse

if [ ! -f "$wheels/requirements.txt" ]; then
    echo "$0: no wheelhouse in $wheels: run \"make wheelhouse\" first" >&2
    exit 1
fi
umask 022
[ -x /opt/pyconfd/bin/python ] || python3 -m venv /opt/pyconfd
install_wheels() { # compiled below with all processors; pip would use one
    /opt/pyconfd/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile --no-deps \
        --no-index --find-links "$wheels" --require-hashes "$@"
}
own=$(mktemp)
trap 'rm -f "$own"' EXIT
sed -n '/^pyconfd==/,/--hash=/p' "$wheels/requirements.txt" >"$own"
install_wheels -r "$wheels/requirements.txt"
# A wheel of the same version may have another content.
install_wheels --force-reinstall -r "$own"
/opt/pyconfd/bin/python -m compileall -q -j 0 /opt/pyconfd/lib

for command in pyconfd pyconfd-vip; do
    ln -sfn "/opt/pyconfd/bin/$command" "/usr/local/bin/$command"
done
/opt/pyconfd/bin/pyconfd --version
