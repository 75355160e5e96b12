"""test_horovod.py CASE COMPAT LAUNCHER… - Horovod's own scripts, unmodified, on libdtrain.

CASE is suite (its CPU tests of horovod.torch), beside (the same on Horovod itself too, installed for
the Python that HOROVOD_PYTHON names: each function ends alike) or the name of one of its example
programs. They are
read from HOROVOD_SOURCE, a checkout of Horovod 0.28.1 or its unpacked source package; COMPAT is the
folder of the `horovod` package that stands in for it, and LAUNCHER starts a command on two ranks.
Exit status 77: skipped, since something is missing."""
import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

RANKS = 2
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"

# Functions of test_torch.py that fail here, and why.
DIFFERENT = {
    "test_horovod_join_allgather": "expects an error where a rank has joined; here an allgather "
                                   "goes on, and that rank has no rows",
    "test_horovod_join_broadcast": "expects an error where a rank has joined; here a broadcast "
                                   "goes on, from a root that has not",
}
# Functions that fail now and then, on Horovod too, and why.
RACES = {
    "test_global_barrier_op": "rank 0 sleeps for five seconds, and others must see five seconds "
                              "pass although they may look at the clock after it",
    "test_process_set_barrier_op": "the same",
}
FUNCTIONS = 115
LEAST = 110

EXAMPLES = {  # path, arguments, what a line of the output must say
    "mnist": ("examples/pytorch/pytorch_mnist.py",
              ["--epochs", "2", "--lr", "0.05", "--no-cuda", "--data-dir", "@DATA@"],
              r"Test set: Average loss: [\d.]+, Accuracy: ([\d.]+)%"),
    "mnist_fp16": ("examples/pytorch/pytorch_mnist.py",
                   ["--epochs", "1", "--no-cuda", "--data-dir", "@DATA@", "--fp16-allreduce",
                    "--gradient-predivide-factor", "2"],
                   r"Test set: Average loss: [\d.]+, Accuracy: ([\d.]+)%"),
    "synthetic": ("examples/pytorch/pytorch_synthetic_benchmark.py",
                  ["--model", "resnet18", "--batch-size", "2", "--num-warmup-batches", "1",
                   "--num-batches-per-iter", "1", "--num-iters", "2", "--no-cuda"],
                  r"Total img/sec on 2 CPU\(s\): ([\d.]+)"),
    "adasum": ("examples/adasum/adasum_small_model.py", ["--op", "Adasum"], None),
    "elastic_mnist": ("examples/elastic/pytorch/pytorch_mnist_elastic.py",
                      ["--epochs", "1", "--no-cuda", "--data-dir", "@DATA@"],
                      r"Test set: Average loss: [\d.]+, Accuracy: ([\d.]+)%"),
    "elastic_synthetic": ("examples/elastic/pytorch/pytorch_synthetic_benchmark_elastic.py",
                          ["--model", "resnet18", "--batch-size", "2", "--num-warmup-batches", "1",
                           "--num-batches-per-iter", "1", "--num-iters", "2", "--no-cuda"],
                          r"Total img/sec on 2 CPU\(s\): ([\d.]+)"),
}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def need(*modules):
    for module in modules:
        if subprocess.run([sys.executable, "-c", f"import {module}"], stderr=subprocess.DEVNULL,
                          check=False).returncode:
            skip(f"Python has no {module} (Debian: python3-{module})")


def write_data(folder, images=2000):
    """The first images of Fashion-MNIST, where torchvision looks for MNIST."""
    raw = os.path.join(folder, "MNIST/raw")
    os.makedirs(raw)
    for name in sorted(os.listdir(FASHION_MNIST)):
        count = images if name.startswith("train") else images // 4
        with gzip.open(os.path.join(FASHION_MNIST, name)) as file:
            magic, _ = struct.unpack(">II", file.read(8))
            sizes = file.read(8) if magic == 0x803 else b""
            data = file.read(count * (28 * 28 if sizes else 1))
        with open(os.path.join(raw, name.removesuffix(".gz")), "wb") as file:
            file.write(struct.pack(">II", magic, count) + sizes + data)


def run(launcher, command, environment, cwd, seconds):
    print(" ".join(command), flush=True)
    done = subprocess.run([*launcher, *command], env=environment, cwd=cwd, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
    return done.returncode, done.stdout


def run_example(case, source, launcher, environment, work):
    path, arguments, says = EXAMPLES[case]
    need("torch", *(["torchvision", "filelock"] if case != "adasum" else []))
    if "@DATA@" in arguments:
        if not os.path.isdir(FASHION_MNIST):
            skip("no Fashion-MNIST (Debian: dataset-fashion-mnist)")
        write_data(work)
    command = [sys.executable, os.path.join(source, path)]
    command += [work if argument == "@DATA@" else argument for argument in arguments]
    status, output = run(launcher, command, environment, work, 200)
    print("\n".join(output.splitlines()[-15:]))
    if status:
        return f"it ended with {status}"
    if says and not re.search(says, output):
        return f"no line says {says}"
    if case == "mnist" and float(re.findall(says, output)[-1]) < 50:
        return "it has not learnt"
    return None


def run_functions(python, source, launcher, environment, work, chosen):
    """What became of each function of the suite: the worst of both ranks; None without a report."""
    file = os.path.join(source, "test/parallel/test_torch.py")
    folder = tempfile.mkdtemp(dir=work)
    # Each rank writes a report of its own.
    command = ["sh", "-c", 'exec "$@" >"$0.$$" 2>&1', os.path.join(folder, "report"), python,
               "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-v", "--tb=short",
               "-W", "ignore", "-k", chosen, file]
    run(launcher, command, environment, folder, 280)
    reports = [os.path.join(folder, name) for name in os.listdir(folder)
               if name.startswith("report.")]
    if len(reports) != RANKS:
        print(f"{len(reports)} reports of {RANKS} ranks")
        return None
    worst = {}
    for path in reports:
        with open(path, encoding="utf-8") as report:
            text = report.read()
        for name, result in re.findall(r"::(test_\w+) (PASSED|FAILED|ERROR|SKIPPED)", text):
            worst[name] = result if worst.get(name) in (None, "PASSED") else worst[name]
        if "FAILED" in text or "ERROR" in text:
            print(text[-6000:])
    return worst


def run_suite(source, launcher, environment, work, beside=None):
    need("torch", "pytest", "mock", "cloudpickle", "packaging")
    chosen = " and ".join(f"not {name}" for name in DIFFERENT)
    here = run_functions(sys.executable, source, launcher, environment, work, chosen)
    if here is None:
        return "no results"
    trouble = judge(here)
    if trouble or beside is None:
        return trouble
    plain = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    there = run_functions(beside, source, launcher, plain, work, chosen)
    other = {name for name in here if name not in RACES and (there or {}).get(name) != here[name]}
    for name in sorted(other):
        print(f"{name}: {here[name]}, on Horovod {(there or {}).get(name)}")
    return f"{len(other)} functions end otherwise than on Horovod" if other else None


def judge(results):
    good = [name for name, result in results.items() if result in ("PASSED", "SKIPPED")]
    bad = {name for name in results if name not in good}
    for name, reason in DIFFERENT.items():
        print(f"not run: {name}: {reason}")
    for name in sorted(bad):
        print(f"failed: {name}: {RACES.get(name, 'unknown reason')}")
    skipped = sum(result == "SKIPPED" for result in results.values())
    print(f"{len(good) - skipped} passed and {skipped} skipped of {FUNCTIONS} functions")
    if len(results) + len(DIFFERENT) != FUNCTIONS:
        return f"{len(results) + len(DIFFERENT)} functions, not {FUNCTIONS}"
    if bad - set(RACES):
        return f"failed: {', '.join(sorted(bad - set(RACES)))}"
    return None if len(good) >= LEAST else f"fewer than {LEAST} passed"


def main():
    case, compat, launcher = sys.argv[1], sys.argv[2], sys.argv[3:]
    source = os.environ.get("HOROVOD_SOURCE")
    if not source:
        skip("HOROVOD_SOURCE does not name a checkout of Horovod 0.28.1")
    beside = os.environ.get("HOROVOD_PYTHON") if case == "beside" else None
    if case == "beside" and not beside:
        skip("HOROVOD_PYTHON does not name a Python that has Horovod 0.28.1")
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([environment.get("PYTHONPATH", ""), compat])
    # Where ranks disagree a test is to fail, not to wait for ever as it would with Horovod.
    environment["DTRAIN_TIMEOUT_MS"] = "20s"
    work = tempfile.mkdtemp(prefix="dtrain-horovod-")
    try:
        if case in ("suite", "beside"):
            trouble = run_suite(source, launcher, environment, work, beside)
        else:
            trouble = run_example(case, source, launcher, environment, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if trouble:
        print(trouble)
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
