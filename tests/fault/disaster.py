"""disaster.py - what can happen to a simulated node as a whole. A rank of it has stopped itself at a
point of its work (DTRAIN_FAULT with `stop`), and its word says which process it is."""

import os
import signal
import subprocess

# link: the node loses its link and works on. node: it loses its link and all its processes at
# once, as when the power goes, so that no connection's end is seen from outside.
KINDS = ["link", "node"]


def outer_pid(inner):
    """The process that has the number in the innermost of its process namespaces."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                spaces = next(line for line in file if line.startswith("NSpid:")).split()
        except (OSError, StopIteration):
            continue
        if len(spaces) > 2 and int(spaces[-1]) == inner:
            return int(pid)
    raise ProcessLookupError(f"no process {inner}")


def network_of(pid):
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def processes_of_node(pid):
    network = network_of(pid)
    return [int(other) for other in filter(str.isdigit, os.listdir("/proc"))
            if network_of(other) == network]


def strike(kind, inner):
    """Lets it happen to the node of the process."""
    pid = outer_pid(inner)
    path = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", "link", "set", "eth0", "down"],
                   check=True, env=path)
    if kind == "link":
        os.kill(pid, signal.SIGCONT)
        return
    for other in processes_of_node(pid):
        try:
            os.kill(other, signal.SIGKILL)
        except ProcessLookupError:
            pass
