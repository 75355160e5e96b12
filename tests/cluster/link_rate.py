#!/usr/bin/env python3
"""link_rate.py NETWORK PID … - what TCP gets out of the links between nodes.

Each node is given by the id of a process that lives in its network namespace; node i has the
address NETWORK.(i + 1). Prints bytes of payload a second: from the first node to the second alone,
and the slowest of all when every node sends to the next at the same time.
"""

import socket
import subprocess
import sys
import time

START_SECONDS = 0.5  # left out: TCP finds the rate, and the limiter's first burst is spent
SECONDS = 1.5


def receive():
    """Prints the port, then the rate at which bytes come."""
    with socket.create_server(("", 0)) as server:
        print(server.getsockname()[1], flush=True)
        server.settimeout(20)
        connection, _ = server.accept()
    buffer = bytearray(1 << 18)
    begin = time.monotonic()
    first, count = None, 0
    while received := connection.recv_into(buffer):
        last = time.monotonic()
        if first is not None:
            count += received
        elif last - begin >= START_SECONDS:
            first = last
    print(count / (last - first))


def send(address, port):
    block = bytes(1 << 16)
    with socket.create_connection((address, int(port)), 20) as connection:
        end = time.monotonic() + START_SECONDS + SECONDS
        while time.monotonic() < end:
            connection.sendall(block)


def on_node(pid, *arguments):
    return subprocess.Popen(["nsenter", "-t", pid, "-n", sys.executable, __file__, *arguments],
                            stdout=subprocess.PIPE, text=True)


def rates(network, pids, pairs):
    receivers = {to: on_node(pids[to], "receive") for _, to in pairs}
    ports = {to: receiver.stdout.readline().strip() for to, receiver in receivers.items()}
    senders = [on_node(pids[by], "send", f"{network}.{to + 1}", ports[to]) for by, to in pairs]
    for sender in senders:
        sender.wait()
    return [float(receiver.communicate()[0]) for receiver in receivers.values()]


def main():
    network, pids = sys.argv[1], sys.argv[2:]
    if network == "receive":
        receive()
    elif network == "send":
        send(*pids)
    else:
        nodes = len(pids)
        if nodes == 1:
            sys.exit("link_rate.py: one node has no link to measure")
        one_way = min(rates(network, pids, [(0, 1)]))
        around = min(rates(network, pids, [(i, (i + 1) % nodes) for i in range(nodes)]))
        print(f"link: one way {one_way:.0f} B/s, around {around:.0f} B/s", flush=True)


if __name__ == "__main__":
    main()
