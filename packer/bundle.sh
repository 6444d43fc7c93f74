#!/bin/sh
# Puts into one file what the machine needs to become an appliance: bundle.sh FILE [FOLDER]; dist/wheelhouse is
# looked for in FOLDER, else beside these sources. The same sources give the same bytes.
set -eu
cd "$(dirname "$0")/.."
target=$1
folder=${2:-.}
[ -f "$folder/dist/wheelhouse/requirements.txt" ] || {
    echo "$0: run \"make wheelhouse\" first" >&2
    exit 1
}
mkdir -p "$(dirname "$target")"
tar --sort=name --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}" --owner=0 --group=0 --numeric-owner \
    --mode=go-w --exclude='__pycache__' -cf "$target.new" LICENSE packer/install.sh packer/manifest.py packer/scripts packer/files systemd \
    pyconfd/keepalived -C "$folder" dist/wheelhouse
mv "$target.new" "$target"
