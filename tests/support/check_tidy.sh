#!/bin/sh
# check_tidy.sh ROOT BUILD - clang-tidy over every C file of the project that BUILD compiles.
# Exit status 77: skipped.
set -eu
root=${1:?usage: check_tidy.sh ROOT BUILD} build=${2:?usage: check_tidy.sh ROOT BUILD}

if ! command -v clang-tidy >/dev/null; then
    echo "skipped: clang-tidy is not installed"
    exit 77
fi

list=$(mktemp) log=$(mktemp)
trap 'rm -f "$list" "$log"' EXIT
# A source that is compiled several times, for several instruction sets, is read once; generated ones
# are not read.
sed -n 's/^ *"file": "\(.*\.c\)",\{0,1\}$/\1/p' "$build/compile_commands.json" |
    grep "^$root/" | grep -v "^$build/" | sort -u >"$list" || true
count=$(wc -l <"$list")
if [ "$count" -eq 0 ]; then
    echo "no files of $root in $build/compile_commands.json: nothing was checked"
    exit 1
fi

# tidy [OPTION …] - the files on standard input, as many at once as there are cores.
tidy()
{
    xargs -r -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build" "$@" >>"$log" 2>&1
}

# The files that define what tidy.h describes go without it.
plain="^$root/\(cuda\|examples\|tests\|src/base/memory.c\|src/base/status.c\|src/comm/nccl/nccl_host.c\)"
failed=0
grep -v "$plain" "$list" | tidy "--extra-arg-before=-include$root/tests/support/tidy.h" || failed=1
grep "$plain" "$list" | tidy || failed=1
if [ $failed -ne 0 ]; then
    # First all that was said, then a list that fits a screen.
    grep -v ' warnings\{0,1\} generated\.$' "$log" || true
    echo
    grep ' error: ' "$log" | sort -u || tail -n 20 "$log"
    exit 1
fi
echo "$count files are clean"
