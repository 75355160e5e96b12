#!/bin/sh
# mpirun.sh FLAVOR LAUNCHER RANKS PROGRAM [ARGUMENT …]
# Starts a program on RANKS ranks of this machine, however few cores it has. FLAVOR is the kind
# of launcher that CMake found: openmpi, hydra (MPICH, Intel MPI) or other.
set -eu

if [ $# -lt 4 ]; then
    echo "usage: mpirun.sh openmpi|hydra|other LAUNCHER RANKS PROGRAM [ARGUMENT ...]" >&2
    exit 2
fi
flavor=$1 launcher=$2 ranks=$3
shift 3

case $flavor in
openmpi)
    options='--oversubscribe --bind-to none'
    if [ "$(id -u)" -eq 0 ]; then
        options="$options --allow-run-as-root"
    fi
    # Idle ranks give their core away; without it 7 ranks on 2 cores take for ever.
    OMPI_MCA_mpi_yield_when_idle=1
    # Sandboxes and containers forbid the calls of CMA; the library warns once a run.
    OMPI_MCA_btl_vader_single_copy_mechanism=none
    export OMPI_MCA_mpi_yield_when_idle OMPI_MCA_btl_vader_single_copy_mechanism
    # shellcheck disable=SC2086
    exec "$launcher" $options -np "$ranks" "$@"
    ;;
hydra)
    exec "$launcher" -n "$ranks" "$@"
    ;;
*)
    exec "$launcher" -n "$ranks" "$@"
    ;;
esac
