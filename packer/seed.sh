#!/bin/sh
# What lets Packer into Debian's cloud image while it is baked: seed.sh FOLDER makes FOLDER/key, and FOLDER/seed, which
# gives cloud-init its public half. The user of the image gets it, and 90-generalize.sh takes it back.
set -eu
mkdir -p "$1/seed"
cd "$1"
[ -f key ] || ssh-keygen -q -t ed25519 -N '' -C packer -f key
# The host's keys are thrown away after the bake: one of the quick kind will do.
printf '#cloud-config\nssh_genkeytypes: [ed25519]\nssh_authorized_keys: ["%s"]\n' "$(cat key.pub)" >seed/user-data
echo 'instance-id: bake' >seed/meta-data
: >seed/vendor-data
