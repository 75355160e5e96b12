"""isolated.py - runs a test script in namespaces of its own, so that what a job leaves is seen.

There are no other processes then, an empty /dev/shm, a folder for temporary files, and no network
but the loopback device: whatever is there after a job, the job has left. And it all goes when the
script ends.
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
MARK = "--isolated"
SETTLE_SECONDS = 2.0

NAMESPACES = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child",
              "--mount-proc"]
PREPARE = 'mount -t tmpfs -o size=1g tmpfs /dev/shm && PATH=$PATH:/usr/sbin:/sbin ip link set lo up'


def enter():
    """Starts this script again in namespaces, or, in them, returns. Ends the script with SKIPPED,
    aloud, where there can be none."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # MPI keeps memory until the end.
    os.environ.setdefault("LSAN_OPTIONS", "detect_leaks=0")
    if MARK in sys.argv:
        sys.argv.remove(MARK)
        return
    namespaces = list(NAMESPACES)
    if os.geteuid() != 0:
        namespaces += ["--user", "--map-root-user"]
    trial = subprocess.run([*namespaces, "sh", "-c", PREPARE], stderr=subprocess.PIPE, text=True,
                           check=False)
    if trial.returncode:
        print(f"skipped: no namespaces here: {trial.stderr.strip()}")
        sys.exit(SKIPPED)
    inside = PREPARE + ' && exec "$@"'
    command = [*namespaces, "sh", "-c", inside, "sh", sys.executable, os.path.abspath(sys.argv[0]),
               *sys.argv[1:], MARK]
    with tempfile.TemporaryDirectory(prefix="dtrain-") as folder, \
            subprocess.Popen(command, env={**os.environ, "TMPDIR": folder}) as child:
        # The namespaces, and all processes in them, go with the child.
        signal.signal(signal.SIGTERM, lambda *_: child.kill())
        sys.exit(child.wait())


def reap():
    """This process is the first of its namespace: orphans become its children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def processes():
    """{pid: command} of all but this process; those that have ended and wait for a parent count
    too, once those of this one are reaped."""
    reap()
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                found[int(pid)] = file.read().strip()
        except OSError:
            continue  # it ended
    found.pop(os.getpid(), None)
    return found


def listeners():
    """The addresses and names that are listened at."""
    found = []
    for family in ("tcp", "tcp6"):
        with open(f"/proc/net/{family}", encoding="utf-8") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        found += [f"{family} {row[1]}" for row in rows if row[3] == "0A"]
    with open("/proc/net/unix", encoding="utf-8") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return found + [f"unix {row[-1]}" for row in rows if int(row[3], 16) & 0x10000]


def leftovers(seconds=SETTLE_SECONDS):
    """What is there after a job, as text; "" when nothing is. Waits a little for it to go."""
    late = time.monotonic() + seconds
    while True:
        found = [f"process {pid} ({name})" for pid, name in processes().items()]
        found += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")]
        found += listeners()
        if not found or time.monotonic() > late:
            return ", ".join(found)
        time.sleep(0.01)


def clean():
    """Takes away what a job has left."""
    for pid in processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for name in os.listdir("/dev/shm"):
        os.unlink(f"/dev/shm/{name}")
