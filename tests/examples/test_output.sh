#!/bin/sh
# test_output.sh LINE COMMAND [ARGUMENT ...] - the command succeeds, and LINE is among what it prints.
line=$1
shift
printed=$("$@") || {
    echo "FAILED: status $? of $*"
    exit 1
}
if ! printf '%s\n' "$printed" | grep -qxF -e "$line"; then
    echo "FAILED: no line '$line' in what $* printed:"
    printf '%s\n' "$printed"
    exit 1
fi
