#!/bin/bash
# run.sh - installs what is missing, then builds and tests libdtrain in every way it is built.
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
reports=$root/build/reports
python=/usr/bin/python3
jobs=$(nproc)
quick=no
cluster=no
install=yes

packages=(build-essential cmake ninja-build pkg-config git
    libopenmpi-dev openmpi-bin mpich libmpich-dev libcmocka-dev
    libopenblas-dev zlib1g-dev dataset-fashion-mnist python3 python3-numpy
    clang clang-format clang-tidy libclang-rt-14-dev iproute2)
# Tests of the Python package that need more than numpy are skipped without these.
python_packages=(python3-torch libopenblas0-pthread python3-cloudpickle python3-mpi4py python3-pip
    python3-setuptools python3-wheel python3-venv)

usage()
{
    cat <<'END'
usage: tests/run.sh [--quick] [--cluster] [--no-install] [--help]

Installs the Debian packages that are missing (as root or with sudo, and says which), builds
libdtrain in build/ and runs its tests:

  ci       gcc, -Werror: unit, parallel, example, interface and style tests
  clang    clang, -Werror: unit tests
  fuzz     what is read from files, wires and the environment, by libFuzzer, for a minute
  asan     address and undefined behaviour sanitizers: unit tests, the GPU path on stand-ins
  tsan     thread sanitizer: unit tests, the GPU path on stand-ins
  mpich    MPICH in place of the default MPI: tests on two ranks
  nompi    without MPI: unit and interface tests
  python   the Python package, with numpy, torch and mpi4py; with HOROVOD_SOURCE, a checkout of
           Horovod 0.28.1, in the environment also Horovod's own scripts
  cuda     the GPU path on stand-ins for CUDA and NCCL, where nvcc is found
  cluster  with --cluster: several nodes, as network namespaces of this machine

A phase that fails does not stop the others. A test that fails (not under a sanitizer) is run again
alone; when it then passes it is named as unsteady, and more than two of these are failures. At the
end come all skipped tests with their reasons, the unsteady and the failed ones with the end of
their output; the last line is "N passed, N failed, N skipped". The exit status is 0 when nothing
failed and something ran.

  --quick       the ci phase only, without the tests that take a minute or more
  --no-install  install nothing
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes ;;
    --cluster) cluster=yes ;;
    --no-install) install=no ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        echo "run.sh: unknown option $1" >&2
        usage >&2
        exit 2
        ;;
    esac
    shift
done

bold='' plain=''
if [ -t 1 ]; then
    bold=$'\033[1m' plain=$'\033[0m'
fi

title()
{
    printf '%s== %s%s\n' "$bold" "$1" "$plain"
}

# The failure of a phase that has no test to fail.
phase_failed()
{
    printf '%s\t%s\n' "$1" "$2" >>"$reports/failed.txt"
    echo "$1: $2"
}

missing_packages()
{
    local package
    for package in "$@"; do
        if ! dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q ' installed$'; then
            echo "$package"
        fi
    done
}

# install_packages LOG PACKAGE … - fails with a text when there is something that it cannot install.
install_packages()
{
    local log=$reports/$1.log
    local -a missing as_root=()
    shift
    if ! command -v apt-get >/dev/null; then
        echo "no apt-get here: using what is installed"
        return
    fi
    mapfile -t missing < <(missing_packages "$@")
    if [ ${#missing[@]} -eq 0 ]; then
        echo "all packages are installed"
        return
    fi
    echo "installing ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "neither root nor sudo, and missing: ${missing[*]}"
            return 1
        fi
        as_root=(sudo)
    fi
    if ! {
        "${as_root[@]}" apt-get update -qq &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
                apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends \
                "${missing[@]}"
    } >"$log" 2>&1; then
        tail -n 20 "$log"
        echo "apt-get failed, log in $log"
        return 1
    fi
}

# build PRESET [CMAKE_OPTION …] - configures and compiles into build/PRESET; shows the log only when it fails.
build()
{
    local preset=$1 log=$reports/$1.build.log
    shift
    if (cd "$root" && cmake --preset "$preset" -DDTRAIN_WERROR=ON &&
        cmake --build "$root/build/$preset" --parallel "$jobs" "$@") >"$log" 2>&1; then
        return 0
    fi
    grep -n -m 20 -i 'error\|warning' "$log"
    tail -n 20 "$log"
    phase_failed "$preset" "the build failed, log in $log"
    return 1
}

# run_ctest PRESET REPORT [CTEST_OPTION …]
run_ctest()
{
    local preset=$1 report=$2
    shift 2
    "${ctest_prefix[@]}" ctest --test-dir "$root/build/$preset" \
        --no-tests=error --no-label-summary --test-output-size-passed 100000 --test-output-size-failed 100000 \
        --output-junit "$reports/$report.xml" "$@" 2>&1 | grep -v '^ *Start '
    return "${PIPESTATUS[0]}"
}

# check PRESET [CTEST_OPTION …] - runs the tests of a build; $report names their report.
check()
{
    local preset=$1 report=${report:-$1}
    shift
    run_ctest "$preset" "$report" --parallel "$jobs" "$@" && return
    [ -e "$reports/$report.xml" ] || phase_failed "$report" "ctest ran no test"
    # What goes by the clock of a busy machine gets a second run. What a sanitizer has seen, it has seen.
    case $preset in
    asan | tsan | fuzz) ;;
    *)
        title "$report: the failed tests again, one by one"
        run_ctest "$preset" "$report.again" --rerun-failed "$@"
        ;;
    esac
}

phase_ci()
{
    # Configuration full: the tests of a minute or more as well.
    local -a options=(-C full -LE 'python|standin')
    [ $quick = no ] || options=(-LE standin)
    build ci && check ci "${options[@]}"
}

phase_clang()
{
    build clang && check clang -L unit
}

phase_fuzz()
{
    build fuzz --target fuzz && check fuzz -L fuzz
}

phase_asan()
{
    build asan && check asan -L 'unit|standin'
}

phase_tsan()
{
    # Where address spaces are laid out very randomly, gcc's TSan finds no room for its shadow.
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        local -a ctest_prefix=(setarch "$(uname -m)" -R)
    fi
    # The kernels' sweep over all types and sizes has one thread and would take minutes.
    build tsan && check tsan -E '^unit\.reduce\.reduce$' \
        -R '^unit\.|standin\.(operations|training)(_polled|_staged)?\.np[12]$'
}

phase_mpich()
{
    build mpich && check mpich -L 'parallel|example|abi' -R 'np2$|abi\.install'
}

phase_nompi()
{
    build nompi && check nompi -L 'unit|abi|example'
}

phase_python()
{
    [ $install = no ] || install_packages python "${python_packages[@]}" ||
        printf 'python\tskipped, in part: its packages cannot be installed\n' |
        tee -a "$reports/skipped.txt"
    build ci && report=python check ci -L python
}

# What has run on no GPU has "standin" in its name. The kernels' unit tests are in the other phases.
phase_cuda()
{
    build ci && report=cuda check ci -L standin
}

phase_cluster()
{
    build ci && report=cluster check ci -C cluster -L cluster
}

# skip_without PROGRAM PHASE - succeeds, and records a skip, when the program is not there.
skip_without()
{
    if command -v "$1" >/dev/null; then
        return 1
    fi
    printf '%s\tskipped: %s is not installed\n' "$2" "$1" | tee -a "$reports/skipped.txt"
}

run_phase()
{
    local start=$SECONDS
    title "$1"
    "phase_$1"
    echo "$1: $((SECONDS - start)) s"
}

rm -rf "$reports"
mkdir -p "$reports"
ctest_prefix=()
export CTEST_OUTPUT_ON_FAILURE=0
unset CMAKE_GENERATOR MAKEFLAGS

title install
[ $install = no ] || install_packages install "${packages[@]}" ||
    phase_failed install "packages are missing"
if command -v ninja >/dev/null; then
    export CMAKE_GENERATOR=Ninja
fi

run_phase ci
if [ $quick = no ]; then
    skip_without clang clang || run_phase clang
    skip_without clang fuzz || run_phase fuzz
    run_phase asan
    run_phase tsan
    skip_without mpicc.mpich mpich || run_phase mpich
    run_phase nompi
    run_phase python
fi
PATH=$PATH:/usr/local/cuda/bin
[ $quick = yes ] || skip_without nvcc cuda || run_phase cuda
if [ $cluster = yes ]; then
    run_phase cluster
else
    printf 'cluster\tskipped: several nodes on this machine, only with --cluster\n' |
        tee -a "$reports/skipped.txt"
fi

title "summary, after $SECONDS s"
"$python" "$root/tests/support/summarize.py" "$reports"
