#!/bin/sh
# survivors.sh MPIRUN FLAVOR LAUNCHER RANKS SURVIVORS PROGRAM [ARGUMENT …]
# Runs a program in which a rank goes down; its last argument is a file that each survivor adds a
# line to when all its checks have passed. Passes when SURVIVORS lines are there; what the launcher
# returns is not looked at.
set -eu

mpirun=$1 flavor=$2 launcher=$3 ranks=$4 survivors=$5
shift 5

if [ "$flavor" != openmpi ]; then
    echo "skipped: this launcher ends the other ranks at once when one goes down"
    exit 77
fi

# By default mpirun ends the survivors within milliseconds.
OMPI_MCA_orte_enable_recovery=1
export OMPI_MCA_orte_enable_recovery

file=$(mktemp)
trap 'rm -f "$file"' EXIT
"$mpirun" "$flavor" "$launcher" "$ranks" "$@" "$file" || true
count=$(wc -l <"$file")
if [ "$count" -ne "$survivors" ]; then
    echo "$count ranks survived, not $survivors"
    exit 1
fi
