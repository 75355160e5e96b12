#!/bin/sh
# nvcc_report.sh REPORT COMMAND ... - runs nvcc and keeps what it says, which is shown on failure.
set -eu
report=$1
shift
if ! "$@" >"$report" 2>&1; then
    cat "$report" >&2
    rm -f "$report"
    exit 1
fi
