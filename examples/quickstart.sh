#!/bin/bash
# quickstart.sh - from a fresh Debian 12 to a model that two ranks trained together.
set -eu -o pipefail
export LC_ALL=C

ranks=2
epochs=5
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
data=/usr/share/datasets/fashion-mnist
log=''

usage()
{
    cat <<END
usage: examples/quickstart.sh [--help]

Says which Debian packages are missing and installs them (as root, or with sudo), builds
libdtrain and the example trainer in build/release, and trains a small network on Fashion-MNIST
for $epochs epochs on $ranks ranks of this machine. Takes a few minutes the first time. Run again, it
installs and compiles nothing. Remove build/ to undo the building; packages stay.
END
}

case ${1-} in
'') ;;
--help | -h)
    usage
    exit 0
    ;;
*)
    echo "quickstart.sh: unknown option $1" >&2
    usage >&2
    exit 2
    ;;
esac

bold='' plain=''
if [ -t 1 ]; then
    bold=$'\033[1m' plain=$'\033[0m'
fi

title()
{
    printf '\n%s== %s%s\n' "$bold" "$1" "$plain"
}

# fail TEXT - the end of the log of what went wrong, if there is one, and the reason.
fail()
{
    if [ -n "$log" ] && [ -s "$log" ]; then
        tail -n 25 "$log" >&2
        echo "quickstart.sh: all of this is in $log" >&2
    fi
    echo "quickstart.sh: $1" >&2
    exit 1
}

have()
{
    command -v "$1" >/dev/null
}

installed()
{
    dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null | grep -q ' installed$'
}

# What is missing, as Debian's packages. Another compiler, make or MPI will do as well.
missing_packages()
{
    have gcc || echo gcc
    installed libc6-dev || echo libc6-dev
    have cmake || echo cmake
    have make || echo make
    { have mpicc && have mpirun; } || echo libopenmpi-dev openmpi-bin
    installed libopenblas-dev || echo libopenblas-dev
    installed zlib1g-dev || echo zlib1g-dev
    [ -d "$data" ] || echo dataset-fashion-mnist
}

install_packages()
{
    local missing
    if ! have apt-get || ! have dpkg-query; then
        echo "This is not Debian: using what is here. Needed are gcc, CMake 3.25, make, MPI,"
        echo "OpenBLAS, zlib, and Fashion-MNIST in $data."
        return
    fi
    missing=$(missing_packages | tr '\n' ' ')
    if [ -z "$missing" ]; then
        echo "Nothing to install."
        return
    fi
    echo "Missing: $missing"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || fail "neither root nor sudo is here; as root, run: apt-get install $missing"
        as_root=(sudo)
    fi
    log=$logs/quickstart-install.log
    echo "Installing them with apt-get takes a minute or two; the log is $log"
    # shellcheck disable=SC2086
    if ! { "${as_root[@]}" apt-get update &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends $missing; } >"$log" 2>&1; then
        fail "apt-get failed; by hand it would be: apt-get install $missing"
    fi
}

build_trainer()
{
    log=$logs/quickstart-build.log
    echo "Compiling what is not yet compiled..."
    (cd "$root" && cmake --preset release) >"$log" 2>&1 || fail "cmake --preset release failed"
    cmake --build "$build" --parallel "$(nproc)" --target mlp_cpu >>"$log" 2>&1 ||
        fail "the build failed"
    echo "The trainer is $build/bin/mlp_cpu"
}

# Finds the launcher of the MPI that the library was linked with: several may be installed, and
# mpirun may belong to another one.
find_launcher()
{
    local wanted candidate
    case $(ldd "$build/lib/libdtrain.so") in
    *libmpi.so.40* | *libmpi.so.80*) wanted='Open MPI|OpenRTE|PRRTE' ;;
    *libmpich.so* | *libmpi.so.12*) wanted='HYDRA|Intel' ;;
    *libmpi*) wanted=. ;;
    *) fail "the library in $build was built without MPI; remove $build and start again" ;;
    esac
    for candidate in mpirun mpirun.openmpi mpirun.mpich mpiexec mpiexec.hydra; do
        if have "$candidate" && "$candidate" --version 2>&1 | grep -qE "$wanted"; then
            launcher=("$candidate")
            break
        fi
    done
    [ ${#launcher[@]} -gt 0 ] ||
        fail "no mpirun here belongs to the MPI that libdtrain is linked with"
    if [[ $wanted == Open* ]]; then
        launcher+=(--oversubscribe --bind-to none)
        [ "$(id -u)" -ne 0 ] || launcher+=(--allow-run-as-root)
        # Containers forbid the calls of CMA, and Open MPI would warn of it in every run.
        export OMPI_MCA_btl_vader_single_copy_mechanism=none
    fi
}

# One rank, one step, no launcher: does the program start, and would OpenBLAS go faster?
try_trainer()
{
    log=$logs/quickstart-try.log
    "$build/bin/mlp_cpu" --synthetic --steps 1 >"$log" 2>&1 || fail "mlp_cpu fails on one rank"
    local advice
    advice=$(sed -n 's/.*OPENBLAS_CORETYPE=\([A-Za-z0-9]*\).*/\1/p' "$log")
    if [ -n "$advice" ]; then
        echo "OpenBLAS does not know this processor: setting OPENBLAS_CORETYPE=$advice"
        export OPENBLAS_CORETYPE=$advice
    fi
}

train()
{
    log=''
    local command=("${launcher[@]}" -n "$ranks" build/release/bin/mlp_cpu --epochs "$epochs")
    echo "\$ ${command[*]}"
    # One thread a rank: the ranks share the cores.
    (cd "$root" && OMP_NUM_THREADS=1 "${command[@]}") | tee "$logs/quickstart-result.log" ||
        fail "the training failed"
}

# value NAME [FORMAT] - a number of the result line.
value()
{
    local number
    number=$(sed -n "s/^RESULT .*\"$1\":\([0-9.e+-]*\).*/\1/p" "$logs/quickstart-result.log")
    # shellcheck disable=SC2059
    [ -z "$number" ] || printf "${2-%s}" "$number"
}

logs=$root/build
mkdir -p "$logs" || fail "cannot write to $root"
launcher=()

title "1. Packages"
install_packages
title "2. Build"
build_trainer
title "3. Training on $ranks ranks"
find_launcher
try_trainer
train
[ -n "$(value test_accuracy)" ] || fail "the training gave no result"

title "Done in $SECONDS s"
cat <<END
$ranks ranks trained one model together. After $(value epochs) epochs it recognises $(value test_accuracy %.4f) of the test
images. They went through $(value samples_per_s %.0f) samples a second; of the $(value step_ms %.2f) ms of a step each waited
$(value exposed_comm_ms %.2f) ms for the others' gradients.

Try next, in $root:
  ${launcher[*]} -n 4 build/release/bin/mlp_cpu --epochs 10
  build/release/bin/mlp_cpu --help
  examples/mlp/mlp_cpu.c     how a training program uses libdtrain
  include/dtrain/dtrain.h    the whole interface
  tests/run.sh               builds and tests everything
END
