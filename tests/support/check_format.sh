#!/bin/sh
# check_format.sh ROOT - every C file is formatted as .clang-format says. Exit status 77: skipped.
set -eu
cd "${1:?usage: check_format.sh ROOT}"

if ! command -v clang-format >/dev/null; then
    echo "skipped: clang-format is not installed"
    exit 77
fi

list_sources()
{
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@"
    else
        find "$@" -name '*.[ch]' -o -name '*.cu*'
    fi
}

list=$(mktemp)
trap 'rm -f "$list"' EXIT
# A file that was deleted but is still in the index is listed too.
list_sources src include examples tests cuda | grep -E '\.(c|h|cc|cu|cuh)$' |
    while read -r file; do [ ! -e "$file" ] || echo "$file"; done >"$list"
count=$(wc -l <"$list")
if [ "$count" -eq 0 ]; then
    echo "no C files under $(pwd): nothing was checked"
    exit 1
fi
xargs clang-format --dry-run -Werror --ferror-limit=1 <"$list"
echo "$count files are formatted"
