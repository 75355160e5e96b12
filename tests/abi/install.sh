#!/bin/sh
# install.sh c|cxx|mpi BUILD LIBDIR COMPILER [MPIRUN …] - installs BUILD into a temporary prefix,
# moves the tree, and builds and runs a program against it: c by pkg-config, cxx by CMake's
# find_package, mpi by pkg-config with MPI's compiler, on two ranks. With c, every installed
# program has to answer --help too. Exit status 77: skipped.
set -eu
language=$1 build=$2 libdir=$3 compiler=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)

skip()
{
    echo "skipped: $1"
    exit 77
}

case $compiler in
*-NOTFOUND) skip "no compiler for $language" ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/install.log" ||
    { cat "$work/install.log"; exit 1; }
mv "$work/first" "$work/prefix"
if grep -rIl "$work/first\|$build" "$work/prefix"; then
    echo "the files above hold the path they were built or installed at"
    exit 1
fi
unset LD_LIBRARY_PATH CPATH C_INCLUDE_PATH LIBRARY_PATH DTRAIN_BACKEND || true
export PKG_CONFIG_PATH="$work/prefix/$libdir/pkgconfig"

build_with_pkg_config()
{
    command -v pkg-config >/dev/null || skip "pkg-config is not installed"
    # shellcheck disable=SC2046
    "$compiler" -std=c11 -Wall -Wextra -Werror "$1" -o "$work/consumer" \
        $(pkg-config --cflags --libs dtrain) "-Wl,-rpath,$work/prefix/$libdir"
}

case $language in
c)
    build_with_pkg_config "$here/consumer.c"
    "$work/consumer"
    for program in "$work"/prefix/bin/*; do
        "$program" --help >"$work/help" || { echo "$program --help fails"; exit 1; }
    done
    ;;
cxx)
    cmake -S "$here/cmake_project" -B "$work/build" "-DCMAKE_PREFIX_PATH=$work/prefix" \
        "-DCMAKE_CXX_COMPILER=$compiler" >"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
    cmake --build "$work/build"
    "$work/build/consumer"
    ;;
mpi)
    build_with_pkg_config "$here/consumer_mpi.c"
    "$@" "$work/consumer"
    ;;
*)
    echo "install.sh: unknown language $language" >&2
    exit 2
    ;;
esac
