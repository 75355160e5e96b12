"""memory_group.py - a control group whose processes may use so much memory and no more: the kernel's
out-of-memory killer ends one of them when they use more."""

import os
import time

# What the two versions call things: the limit, swapping, and where kills are counted.
FILES = {1: ("memory.limit_in_bytes", ("memory.swappiness", "0"), "memory.oom_control"),
         2: ("memory.max", ("memory.swap.max", "0"), "memory.events")}


class MemoryGroup:
    """Of whichever version the machine has. A context: it is gone, if it is empty, at the end."""

    def __init__(self, limit_bytes):
        """OSError where no group can be made: not the machine's root, or no such controller."""
        self.version, parents = find_parents()
        self.path = make_below(parents, self.version)
        limit, swapping, self.counts = FILES[self.version]
        self.write(limit, str(limit_bytes))
        if os.path.exists(os.path.join(self.path, swapping[0])):
            self.write(*swapping)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        late = time.monotonic() + 5
        while os.path.exists(self.path):
            try:
                os.rmdir(self.path)
            except OSError:
                if time.monotonic() > late:
                    raise
                time.sleep(0.01)  # a process of it has ended just now

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            file.write(value)

    def kills(self):
        """How many of its processes were killed for want of memory."""
        with open(os.path.join(self.path, self.counts), encoding="utf-8") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))


def find_parents():
    """The version of the memory controller, and the folders of this process's group and of those
    above it, up to the root."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        mounts = [line.split() for line in file]
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        own = {row[1]: row[2] for row in (line.strip().split(":", 2) for line in file)}
    for _, root, kind, options, *_ in mounts:
        if kind == "cgroup" and "memory" in options.split(","):
            names = next(path for names, path in own.items() if "memory" in names.split(","))
            return 1, folders(root, names)
    for _, root, kind, *_ in mounts:
        if kind == "cgroup2":
            return 2, folders(root, own.get("", "/"))
    raise OSError("no memory controller is mounted")


def folders(root, path):
    found = []
    while path not in ("", "/"):
        found.append(root + path)
        path = os.path.dirname(path)
    return [*filter(os.path.isdir, found), root]


def make_below(parents, version):
    why = None
    for parent in parents:
        path = os.path.join(parent, f"dtrain-test-{os.urandom(4).hex()}")
        try:
            os.mkdir(path)
        except OSError as error:
            why = error
            continue
        try:
            # Version 2 has the controller only where the group above hands it on.
            if not os.path.exists(os.path.join(path, FILES[version][0])):
                with open(os.path.join(parent, "cgroup.subtree_control"), "w",
                          encoding="utf-8") as file:
                    file.write("+memory")
            return path
        except OSError as error:
            why = error
            os.rmdir(path)
    raise OSError(f"no group can be made: {why}")
