#!/bin/sh
# test_rank_size.sh RANKS COMMAND … - the command prints one line for each of RANKS ranks.
set -eu
ranks=$1
shift
seen=$("$@" | tr -d '\r' | sort)
wanted=$(
    rank=0
    while [ "$rank" -lt "$ranks" ]; do
        echo "rank $rank of $ranks, local rank $rank of $ranks, cross rank 0 of 1"
        rank=$((rank + 1))
    done
)
if [ "$seen" != "$wanted" ]; then
    printf 'printed:\n%s\nexpected:\n%s\n' "$seen" "$wanted"
    exit 1
fi
echo "$seen"
