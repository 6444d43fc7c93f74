#!/bin/sh
# For those who still call the predecessor's notify script: pyconfd-vip reads transitions from the fifo.
#   keepalived-failover.sh STATE | TYPE NAME STATE [PRIORITY]     as keepalived passes it; anything but MASTER does nothing
#   keepalived-failover.sh -s ADDRESS [-g GATEWAY] [-a STATE]     the predecessor's options; the gateway is not needed
# As MASTER it announces the addresses again (until that was seen to leave), where the predecessor pinged with nmap.
set -eu
state=MASTER
while getopts s:g:a: option; do
    case "$option" in
        a) state=$OPTARG ;;
        s | g) ;;
        *) exit 64 ;;
    esac
done
shift $((OPTIND - 1))
case "$#" in
    0) ;;
    1 | 2) state=$1 ;;
    *) state=$3 ;;
esac
[ "$state" = MASTER ] || exit 0
exec "${PYCONFD:-/opt/pyconfd/bin/pyconfd}" vip announce
