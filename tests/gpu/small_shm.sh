#!/bin/sh
# small_shm.sh COMMAND [ARGUMENT …] - runs a program where /dev/shm is as small as containers often
# have it; what it prints has to tell of that. 77: skipped.
set -eu

user=
[ "$(id -u)" -eq 0 ] || user='--user --map-root-user'
# shellcheck disable=SC2086
if ! unshare --mount $user mount -t tmpfs -o size=64m tmpfs /dev/shm; then
    echo 'skipped: there can be no namespaces here'
    exit 77
fi
# shellcheck disable=SC2016,SC2086
output=$(unshare --mount $user sh -c \
    'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"' sh "$@" 2>&1) || {
    echo "$output"
    exit 1
}
echo "$output"
case $output in
*'/dev/shm has'*) ;;
*) exit 1 ;;
esac
