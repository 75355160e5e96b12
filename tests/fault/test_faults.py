#!/usr/bin/env python3
"""test_faults.py MPIRUN CASE PROGRAM … - what has to hold when something goes wrong around a job; the
cases are below. They run in namespaces of their own (isolated.py).

Exit status 77: skipped, and the output says why.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))

import isolated  # noqa: E402
from memory_group import MemoryGroup  # noqa: E402
from nodes import expect  # noqa: E402

RANK_LOST = -7
MEMORY_BYTES = 256 << 20  # of a rank that takes 16 MiB a step
PAUSE_SECONDS = 5
END_SECONDS = 2.5
SLACK = 10  # the machine may do other things too
PATIENT = {"OMPI_MCA_orte_enable_recovery": "1"}


class Job:
    """A launcher with its ranks; the file is where they, and a fault point, leave word."""

    def __init__(self, mpirun, ranks, *program, environment=None):
        self.file = tempfile.NamedTemporaryFile("r", prefix="dtrain-fault-")
        self.log = tempfile.TemporaryFile("w+")
        arguments = [str(argument).replace("FILE", self.file.name) for argument in program]
        values = {name: value.replace("FILE", self.file.name)
                  for name, value in (environment or {}).items()}
        here = os.path.join(HERE, "..", "support", "mpirun.sh")
        self.process = subprocess.Popen([here, "openmpi", mpirun, str(ranks), *arguments],
                                        env={**os.environ, **values}, stdout=self.log,
                                        stderr=subprocess.STDOUT)

    def lines(self):
        with open(self.file.name, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().splitlines()]

    def printed(self):
        self.log.seek(0)
        return self.log.read()

    def wait(self, seconds):
        """The launcher's exit status; the test fails when there is none in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            sys.exit(f"FAILED: a hang: not done after {seconds} s: {self.lines()}\n{self.printed()}")

    def await_word(self, seconds=30):
        """The line of a fault point."""
        late = time.monotonic() + seconds
        while time.monotonic() < late:
            for line in self.lines():
                if "victim" in line:
                    return line
            expect(self.process.poll() is None, f"the job ended: {self.printed()}")
            time.sleep(0.005)
        return sys.exit("FAILED: no rank reached the point")


def expect_all_work(job, ranks, seconds):
    status = job.wait(seconds)
    told = [line for line in job.lines() if "rank" in line]
    expect(status == 0 and len(told) == ranks and all(line["status"] == 0 for line in told),
           f"status {status}: {told}\n{job.printed()}")


def expect_nothing_left():
    left = isolated.leftovers()
    expect(not left, f"left: {left}")


def case_pause(mpirun, victim):
    """A rank that is stopped for a while under load is no loss, and the work goes on."""
    job = Job(mpirun, 3, victim, "FILE", 60,
              environment={"DTRAIN_FAULT": "1:reduce:100:stop:FILE"})
    word = job.await_word()
    time.sleep(PAUSE_SECONDS)  # what is tested is that so long a pause is nothing
    expect(job.process.poll() is None, f"the job has ended: {job.printed()}")
    os.kill(word["pid"], signal.SIGCONT)
    expect_all_work(job, 3, 60)
    expect_nothing_left()


def case_orphans(mpirun, victim):
    """When the launcher is killed the ranks end, in the midst of their work."""
    job = Job(mpirun, 3, victim, "FILE", 100000,
              environment={"DTRAIN_FAULT": "1:reduce:100:stop:FILE"})
    word = job.await_word()
    job.process.kill()
    job.process.wait()
    os.kill(word["pid"], signal.SIGCONT)
    start = time.monotonic()
    while isolated.processes() and time.monotonic() < start + END_SECONDS * SLACK:
        time.sleep(0.005)
    print(f"the ranks ended {time.monotonic() - start:.2f} s after the launcher")
    expect_nothing_left()


def fill_shared_memory(size):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/dev/shm"], check=True)
    try:
        with open("/dev/shm/filler", "wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    except OSError:
        pass  # it is full now


def case_full_shared_memory(mpirun, victim):
    """No place in /dev/shm: libdtrain needs none. MPI may; it has to say so, and not to hang."""
    fill_shared_memory("64k")
    sockets = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
    expect_all_work(Job(mpirun, 3, victim, "FILE", 5, environment=sockets), 3, 60)
    job = Job(mpirun, 3, victim, "FILE", 5)
    status = job.wait(60)
    print(f"with MPI's own use of /dev/shm: exit status {status}: {job.printed()[:300]}")
    expect(status != 0 or len(job.lines()) == 3, "it ended without an error, and without a result")


def case_descriptors(mpirun, victim):
    """A low limit of descriptors: all ranks work, or all get an error that says so."""
    outcomes = {}
    for limit in (16, 24, 28, 32, 36, 40, 48, 64):
        job = Job(mpirun, 2, "sh", "-c", f"ulimit -n {limit} && exec {victim} FILE 3",
                  environment={"DTRAIN_INIT_TIMEOUT_MS": "5000", **PATIENT})
        status = job.wait(60)
        told = [line["status"] for line in job.lines()]
        outcomes[limit] = told
        # Below some limit MPI itself does not start: then there is nobody who could tell.
        expect(told or status != 0, f"limit {limit}: exit status {status}, and no rank told why")
        expect(len(told) in (0, 2) and len(set(map(bool, told))) < 2,
               f"limit {limit}: ranks differ: {job.lines()}\n{job.printed()}")
        texts = [line["text"] for line in job.lines() if line["status"]]
        print(f"limit {limit}: {told} {texts[:1]}")
    expect(outcomes[64] == [0, 0], "64 descriptors are not enough")


def case_starve(mpirun, starve):
    """Every allocation of a whole run fails once on each rank: no crash and no hang, and an error
    that says so on all ranks. The exit status says nothing: MPI is not finalized after a world that
    ended early."""
    for ranks, stride in ((2, 1), (3, 3)):
        rounds = 171 // stride
        for first in range(1, ranks + 1):
            job = Job(mpirun, ranks, starve, "FILE", first, rounds, stride,
                      environment={"DTRAIN_LOG_LEVEL": "off", "DTRAIN_INIT_TIMEOUT_MS": "10000",
                                   **PATIENT})
            job.wait(120)
            failed = len(job.lines())
            print(f"{ranks} ranks: {failed} allocations failed")
            expect(0 < failed < rounds, f"{failed} of {rounds} rounds had an allocation to fail")
            expect(job.printed().count(f"{rounds} rounds, 0 wrong") == ranks, job.printed()[-3000:])


def case_out_of_memory(mpirun, victim):
    """The kernel's out-of-memory killer takes a rank that leaks: the others are told who is lost."""
    try:
        group = MemoryGroup(MEMORY_BYTES)
    except OSError as error:
        print(f"skipped: the memory of a process cannot be limited here: {error}")
        sys.exit(isolated.SKIPPED)
    enter = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then echo $$ >"$0" || exit 9; fi; exec "$@"'
    with group:
        job = Job(mpirun, 3, "sh", "-c", enter, os.path.join(group.path, "cgroup.procs"), victim,
                  "FILE", 100, 1, environment=PATIENT)
        job.wait(120)
        expect(group.kills() > 0, f"the killer did nothing: {job.lines()}\n{job.printed()}")
    told = {line["rank"]: line for line in job.lines()}
    expect(sorted(told) == [0, 2], f"{told}\n{job.printed()}")
    for line in told.values():
        expect(line["status"] == RANK_LOST and "rank 1 on host " in line["text"] and
               not line["wrong"], f"{line}")
    print(told[0]["text"])
    expect_nothing_left()


def pids_of(name):
    return [pid for pid, found in isolated.processes().items() if found == name[:15]]


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return int(re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", file.read())[1])


def has_world(pid):
    """Whether libdtrain's thread runs in a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return any(read_name(f"/proc/{pid}/task/{thread}/comm") == "dtrain" for thread in threads)
    except OSError:
        return False  # it ended


def read_name(path):
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def case_bench_kill(mpirun, bench, rounds=5):
    """kill -9 of a rank of dtrain-bench: the others print who was lost, the job ends in time."""
    choice = random.Random(4)
    times = []
    for _ in range(int(rounds)):
        job = Job(mpirun, 3, bench, "allreduce", "-b", "4", "-e", "16M", "-n", 100000)
        late = time.monotonic() + 30
        while time.monotonic() < late and \
                sum(map(has_world, pids_of(os.path.basename(bench)))) < 3:
            time.sleep(0.01)
        time.sleep(choice.random() / 2)  # any moment
        pid = choice.choice(pids_of(os.path.basename(bench)))
        rank = rank_of(pid)
        start = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        status = job.wait(30)
        times.append(time.monotonic() - start)
        expect(status != 0, f"the job's exit status is 0: {job.printed()}")
        expect(re.search(f"rank {rank} on host .* is lost", job.printed()),
               f"nobody printed that rank {rank} was lost: {job.printed()}")
        expect_nothing_left()
    print(f"{len(times)} rounds: the job ended after {max(times):.2f} s at the latest")
    expect(max(times) < END_SECONDS * SLACK, "the job ended too late")


def main():
    isolated.enter()
    globals()["case_" + sys.argv[2]](sys.argv[1], *sys.argv[3:])


if __name__ == "__main__":
    main()
