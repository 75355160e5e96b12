#!/bin/sh
# header.sh c|cxx COMPILER INCLUDE_FOLDER… - dtrain.h and dtrain_cuda.h compile as strict C11 or C++11, in
# any order and twice, and includes nothing of MPI or CUDA. Exit status 77: skipped.
set -eu
language=$1 compiler=$2
shift 2
case $compiler in
*-NOTFOUND)
    echo "skipped: no compiler for $language"
    exit 77
    ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

includes=
for folder in "$@"; do
    includes="$includes -I$folder"
done
if [ "$language" = c ]; then
    options='-std=c11 -Wstrict-prototypes' source=$work/header.c
else
    options='-std=c++11' source=$work/header.cpp
fi
cat >"$source" <<'END'
#include <dtrain/dtrain_cuda.h>
#include <dtrain/dtrain.h>
#include <dtrain/dtrain_cuda.h>

int check(void);

int check(void)
{
    return (int)dtrain_init(NULL);
}
END

# shellcheck disable=SC2086
"$compiler" $options -pedantic-errors -Wall -Wextra -Wshadow -Werror $includes -c "$source" \
    -o "$work/header.o"
# shellcheck disable=SC2086
"$compiler" $options $includes -M "$source" | tr ' \\' '\n\n' >"$work/files"
if ! grep -q 'dtrain/dtrain\.h$' "$work/files"; then
    echo "the compiler did not list dtrain.h: nothing was checked"
    exit 1
fi
if grep -iE '/[^/]*(mpi|cuda|nccl)[^/]*$' "$work/files" | grep -v 'dtrain/dtrain_cuda\.h$'; then
    echo "dtrain.h and dtrain_cuda.h must not include the files above"
    exit 1
fi
echo "dtrain.h is plain $language"
