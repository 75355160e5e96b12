#!/bin/sh
# survivors.sh MPIRUN FLAVOR LAUNCHER RANKS SURVIVORS PROGRAM [ARGUMENT …]
# Runs a program in which a rank goes down. Passes when SURVIVORS ranks have written "survived",
# and none a failed check; what the launcher returns is not looked at.
set -u

mpirun=$1 flavor=$2 launcher=$3 ranks=$4 survivors=$5
shift 5

if [ "$flavor" != openmpi ]; then
    echo "skipped: this launcher ends the other ranks at once when one goes down"
    exit 77
fi

output=$("$mpirun" "$flavor" "$launcher" "$ranks" "$@" 2>&1)
echo "$output"
count=$(echo "$output" | grep -c '^survived: rank')
if echo "$output" | grep -q '^FAILED'; then
    echo "a check failed"
    exit 1
fi
if [ "$count" -ne "$survivors" ]; then
    echo "$count ranks survived, not $survivors"
    exit 1
fi
