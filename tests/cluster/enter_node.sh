#!/bin/bash
# enter_node.sh NODE COMMAND … - what mpirun takes for ssh: runs a command line on node0, node1, …
set -eu
while [[ ${1-} == -* ]]; do
    shift
done
read -r -a pids <<<"$NODES_PIDS"
pid=${pids[${1#node}]}
shift
exec nsenter -t "$pid" -n -u -m bash -c "$*"
