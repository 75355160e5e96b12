#!/bin/sh
# with_numpy.sh PYTHON SCRIPT [ARGUMENT …] - runs a script that is of no use without numpy.
set -eu
if ! "$1" -c 'import numpy' 2>/dev/null; then
    echo "skipped: $1 has no numpy (Debian: python3-numpy)"
    exit 77
fi
exec "$@"
