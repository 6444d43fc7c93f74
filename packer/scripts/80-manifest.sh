#!/bin/sh
# What this machine is made of, as JSON: versions of packages, sha256 of pyconfd's own files and of each wheel.
#   PYCONFD_MANIFEST   where it goes (/usr/share/pyconfd/manifest.json)
set -eu
source=${PYCONFD_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
exec python3 "$source/packer/manifest.py" --wheelhouse "$source/dist/wheelhouse" \
    --output "${PYCONFD_MANIFEST:-/usr/share/pyconfd/manifest.json}"
