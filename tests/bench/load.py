"""How much of the machine others use, from /proc/stat."""

import os
import resource
import time

TICKS = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1


def busy_seconds(text):
    """Seconds of all cores in use, and those that the host took, out of /proc/stat's text."""
    values = [int(word) for word in text.split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = values[:8]
    return (user + nice + system + irq + softirq) / TICKS, steal / TICKS


def read():
    with open("/proc/stat", encoding="ascii") as file:
        return busy_seconds(file.read())


def own_seconds():
    """What this process and the children that it has waited for have used."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


class Watch:
    """From its making on, the percentage of the machine that others used, the host included."""

    def __init__(self):
        self.start, self.own = time.monotonic(), own_seconds()
        self.busy, self.steal = read()

    def percent(self):
        busy, steal = read()
        wall = time.monotonic() - self.start
        others = max(0.0, busy - self.busy - (own_seconds() - self.own)) + steal - self.steal
        return 100 * others / (wall * CORES)


def wait_for_quiet(limit, deadline):
    """Waits until others used less than `limit` percent for a moment. False at the deadline."""
    calm = 0
    while calm < 2:
        if time.monotonic() > deadline:
            return False
        watch = Watch()
        time.sleep(0.2)
        calm = calm + 1 if watch.percent() <= limit else 0
    return True
