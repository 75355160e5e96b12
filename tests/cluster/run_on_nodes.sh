#!/bin/bash
# run_on_nodes.sh - runs an MPI program on several nodes that are network namespaces of this machine.
#
# Everything happens in namespaces of this run alone: a switch (a bridge), a network, host name,
# /etc/hosts and /dev/shm for each node, and all processes in one process namespace. Its end, by
# whatever signal, ends them all, and nothing is left behind.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
rate='' by=slot measure=no launcher=${MPIRUN:-mpirun} more=''

usage()
{
    cat <<'END'
usage: run_on_nodes.sh NODES RANKS_PER_NODE [options] -- program [argument ...]

Runs the program under Open MPI's mpirun on nodes called node0, node1, ... RANKS_PER_NODE is a
number, or one for each node, as 2,1. DTRAIN_* and OMPI_MCA_* variables reach all ranks.

  --rate RATE      limit each node's link in both directions, as 200mbit
  --measure        first measure what TCP gets out of the links, and print it
  --by-node        deal the ranks out to the nodes in turn, in place of node by node
  --mpirun PROGRAM mpirun of Open MPI 4 or 5 ($MPIRUN, or mpirun)
  --mpirun-options TEXT  more for mpirun, as "--with-ft ulfm"
  --help           this text

Exit status: the program's; 77 when this machine cannot do it, with the reason on the last line.
It needs root or user namespaces, iproute2 and util-linux.
END
}

wrong()
{
    echo "run_on_nodes.sh: $1" >&2
    usage >&2
    exit 2
}

skip()
{
    echo "skipped: $1"
    exit 77
}

number='^[1-9][0-9]*$'
[ "${1-}" != --help ] || {
    usage
    exit 0
}
[ $# -ge 2 ] || wrong "NODES and RANKS_PER_NODE are missing"
nodes=$1 ranks=$2
shift 2
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    --rate | --mpirun | --mpirun-options) [ $# -ge 2 ] || wrong "$1 needs a value" ;;&
    --rate) rate=$2 && shift ;;
    --mpirun) launcher=$2 && shift ;;
    --mpirun-options) more=$2 && shift ;;
    --measure) measure=yes ;;
    --by-node) by=node ;;
    *) wrong "unknown option $1" ;;
    esac
    shift
done
[ $# -ge 2 ] || wrong "no program after --"
shift
[[ $nodes =~ $number && $nodes -le 200 ]] || wrong "NODES is '$nodes', not a number up to 200"
IFS=, read -r -a counts <<<"$ranks"
[ ${#counts[@]} -gt 1 ] || for ((i = 1; i < nodes; i++)); do counts+=("$ranks"); done
[ ${#counts[@]} -eq "$nodes" ] || wrong "RANKS_PER_NODE is '$ranks' for $nodes nodes"
for count in "${counts[@]}"; do
    [[ $count =~ $number ]] || wrong "RANKS_PER_NODE is '$ranks'"
done

PATH=$PATH:/usr/sbin:/sbin
for tool in ip tc unshare nsenter setpriv setsid; do
    command -v "$tool" >/dev/null || skip "$tool is not installed (Debian: iproute2, util-linux)"
done
command -v "$launcher" >/dev/null || skip "$launcher is not installed"
"$launcher" --version 2>/dev/null | grep -qE 'Open MPI|OpenRTE' || skip "$launcher is not Open MPI's"
# setpriv: the namespaces, and with them all processes, end with this script even when it is killed.
isolate=(setpriv --pdeathsig KILL unshare --mount --net --uts --pid --fork --kill-child --mount-proc)
[ "$(id -u)" -eq 0 ] || isolate+=(--user --map-root-user)
trial='ip link add name a type veth peer name b && ip link add name c type bridge &&
    tc qdisc add dev a root tbf rate 1gbit burst 64kb latency 50ms && mount -t tmpfs tmpfs /dev/shm &&
    unshare --net --uts --mount hostname trial'
reason=$("${isolate[@]}" sh -c "$trial" 2>&1) || skip "no network namespaces here: ${reason//$'\n'/; }"

# setsid: mpirun signals process groups, and one that began outside would take its caller down.
NODES_RATE=$rate NODES_MEASURE=$measure NODES_BY=$by NODES_MPIRUN=$launcher NODES_OPTIONS=$more \
    NODES_COUNTS=${counts[*]} \
    "${isolate[@]}" setsid "$here/inside_nodes.sh" "$@" &
child=$!
trap 'kill -KILL "$child" 2>/dev/null; exit 143' TERM INT HUP
wait "$child"
