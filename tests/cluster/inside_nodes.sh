#!/bin/bash
# inside_nodes.sh PROGRAM [ARGUMENT …] - makes the nodes and runs mpirun on the first of them; the
# second half of run_on_nodes.sh, which gives it namespaces of its own and its settings in NODES_*.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
read -r -a counts <<<"$NODES_COUNTS"
nodes=${#counts[@]}
# Addresses of these namespaces alone: nothing connects them to the machine's networks.
network=10.77.0

# Prints its process id when the node is ready, and keeps the node's namespaces.
node='
set -eu
hostname "$0"
mount --bind /dev/shm/hosts /etc/hosts
mount -t tmpfs -o size=512m tmpfs /dev/shm
ip link set lo up
echo $$
exec sleep infinity
'

limit()
{
    [ -z "$NODES_RATE" ] || tc qdisc add dev "$1" root tbf rate "$NODES_RATE" burst 64kb latency 50ms
}

make_node()
{
    local i=$1 pid ready
    exec {ready}< <(exec unshare --net --uts --mount bash -c "$node" "node$i")
    read -r pid <&"$ready" || return 1
    pids+=("$pid")
    ip link add name "port$i" type veth peer name eth0 netns "$pid"
    ip link set "port$i" master switch up
    limit "port$i"
    nsenter -t "$pid" -n ip address add "$network.$((i + 1))/24" dev eth0
    nsenter -t "$pid" -n ip link set eth0 up
    nsenter -t "$pid" -n bash -eu -c "NODES_RATE='$NODES_RATE'; $(declare -f limit); limit eth0"
}

make_nodes()
{
    local i
    mount -t tmpfs -o size=1m tmpfs /dev/shm
    echo '127.0.0.1 localhost' >/dev/shm/hosts
    for ((i = 0; i < nodes; i++)); do
        echo "$network.$((i + 1)) node$i" >>/dev/shm/hosts
    done
    ip link set lo up
    ip link add name switch type bridge
    ip link set switch up
    for ((i = 0; i < nodes; i++)); do
        make_node "$i"
    done
}

# Sets hosts and options.
choose_options()
{
    local i name total=0
    local -a more
    hosts=''
    for ((i = 0; i < nodes; i++)); do
        hosts=$hosts${hosts:+,}node$i:${counts[i]}
        total=$((total + counts[i]))
    done
    # Open MPI 5 has another launcher, PRRTE, with parameters of its own.
    if "$NODES_MPIRUN" --version | grep -qE 'OpenRTE|Open MPI\) 4'; then
        options=(--mca plm rsh --mca plm_rsh_agent "$here/enter_node.sh" --mca plm_rsh_no_tree_spawn 1
            --mca oob_tcp_if_include eth0 --mca orte_tmpdir_base /dev/shm
            --mca btl tcp,vader,self --mca btl_vader_single_copy_mechanism none --oversubscribe
            --map-by "$NODES_BY")
    else
        options=(--prtemca plm ssh --prtemca plm_ssh_agent "$here/enter_node.sh"
            --prtemca plm_ssh_no_tree_spawn 1 --prtemca prte_if_include eth0
            --prtemca prte_tmpdir_base /dev/shm
            --mca btl tcp,sm,self --map-by "$NODES_BY:OVERSUBSCRIBE")
    fi
    read -r -a more <<<"$NODES_OPTIONS"
    options+=(-np "$total" -H "$hosts" --bind-to none --allow-run-as-root --mca pml ob1
        --mca btl_tcp_if_include eth0 --mca mpi_yield_when_idle 1 "${more[@]}")
    for name in "${!DTRAIN_@}"; do
        options+=(-x "$name")
    done
}

pids=()
make_nodes
if [ "$NODES_MEASURE" = yes ]; then
    python3 "$here/link_rate.py" "$network" "${pids[@]}"
fi
choose_options
# Entering a mount namespace changes to its root folder. In a group with process 1, what mpirun
# sends to its group would go to -1: to all processes.
# shellcheck disable=SC2016
NODES_PIDS=${pids[*]} nsenter -t "${pids[0]}" -n -u -m \
    bash -c 'cd "$0" && exec setsid "$@"' "$PWD" "$NODES_MPIRUN" "${options[@]}" "$@" </dev/null
