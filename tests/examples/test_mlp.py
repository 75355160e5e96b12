#!/usr/bin/env python3
"""test_mlp.py MPIRUN_SH FLAVOR LAUNCHER PROGRAM CASE - runs the trainer as users do.

MPIRUN_SH, FLAVOR and LAUNCHER are those of tests/support/mpirun.sh; FLAVOR none runs single
processes only. Exit status 77: skipped, and the output says why.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

FASHION = "/usr/share/datasets/fashion-mnist"
FILES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte",
         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
KEYS = {"ranks": int, "epochs": int, "test_accuracy": float, "train_loss": float,
        "samples_per_s": float, "step_ms": float, "comm_ms": float, "exposed_comm_ms": float,
        "overlap": float, "bus_gb_per_s": float, "buckets": int, "gradient_bytes": int,
        "param_checksum": str}
# An error has to end all ranks well before libdtrain's own deadline of 60 s would.
ERROR_SECONDS = 30

# Runs its arguments with --data and one of two folders: the second on the last rank only.
BY_RANK = """
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} good=$1 bad=$2 last=$3
shift 3
[ "$rank" = "$last" ] && good=$bad
exec "$@" --data "$good"
"""


class Trainer:
    def __init__(self, mpirun, flavor, launcher, program):
        self.start = [mpirun, flavor, launcher]
        self.flavor = flavor
        self.program = program

    def run(self, ranks, *options, wrapper=(), seconds=500):
        command = [*wrapper, self.program, *map(str, options)]
        if self.flavor != "none":
            command = [*self.start, str(ranks), *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        print("$", " ".join(command), f"-> {done.returncode}")
        print(done.stdout + done.stderr, flush=True)
        return done

    def result(self, ranks, *options):
        """Trains, and returns what RESULT says, checked for its form."""
        done = self.run(ranks, *options)
        expect(done.returncode == 0, f"exit status {done.returncode}")
        self.output = done.stdout
        lines = done.stdout.splitlines()
        expect(lines[-1].startswith("RESULT {"), "the last line is not RESULT")
        expect(sum(line.startswith("RESULT") for line in lines) == 1, "RESULT comes once")
        expect("not released" not in done.stderr, "handles of the library's are called the program's")
        expect("\r" not in done.stdout + done.stderr, "a progress line outside a terminal")
        result = json.loads(lines[-1][len("RESULT "):], parse_constant=refuse_constant)
        expect(list(result) == list(KEYS), f"keys are {list(result)}")
        for key, kind in KEYS.items():
            right = isinstance(result[key], (int, float) if kind is float else kind)
            expect(right, f"{key} is {result[key]!r}")
        expect(result["ranks"] == ranks, f"ranks is {result['ranks']}, not {ranks}")
        expect(re.fullmatch("[0-9a-f]{16}", result["param_checksum"]), "not a checksum")
        expect(0 <= result["exposed_comm_ms"] <= result["comm_ms"] <= result["step_ms"],
               "times contradict each other")
        expect(0 <= result["overlap"] <= 1, f"overlap {result['overlap']}")
        expect((result["bus_gb_per_s"] > 0) == (ranks > 1), "the bus rate is that of other ranks")
        expect(result["buckets"] > 0 and result["gradient_bytes"] > 0, "there are gradients")
        epochs = [line for line in lines if line.startswith("epoch ")]
        expect(len(epochs) == result["epochs"], f"{len(epochs)} lines of epochs")
        return result

    def error(self, ranks, *options, says, wrapper=()):
        """The program must end soon, badly, and say everything in `says` in one line, once."""
        done = self.run(ranks, *options, wrapper=wrapper, seconds=ERROR_SECONDS)
        expect(done.returncode == 1, f"exit status {done.returncode}, not 1")
        name = os.path.basename(self.program) + ": "
        lines = [line for line in done.stderr.splitlines() if line.startswith(name)]
        expect(len(lines) == 1, f"{len(lines)} lines of errors")
        for text in says:
            expect(text in lines[0], f"the error does not say {text!r}")
        expect("RESULT" not in done.stdout, "RESULT after an error")


def use_fast_kernels(program):
    """Follows the trainer's advice on how to compute fast on this machine."""
    done = subprocess.run([program, "--synthetic", "--steps", "1"], capture_output=True, text=True,
                          timeout=60)
    advice = re.search(r"OPENBLAS_CORETYPE=(\w+)", done.stderr)
    if advice:
        os.environ["OPENBLAS_CORETYPE"] = advice.group(1)


def expect(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def refuse_constant(name):
    sys.exit(f"FAILED: {name} is not JSON")


def need_fashion_mnist():
    if not os.path.isdir(FASHION):
        print(f"skipped: {FASHION} is not there (Debian: dataset-fashion-mnist)")
        sys.exit(77)


def case_alone(trainer):
    """One process, no launcher."""
    trainer.flavor = "none"
    trainer.result(1, "--synthetic", "--steps", 20)
    done = trainer.run(1, "--help")
    expect(done.returncode == 0 and "--batch-per-rank" in done.stdout, "--help")
    trainer.error(1, "--lr", "fast", says=["--lr", "'fast'"])
    trainer.error(1, "--data", "/nonexistent", says=["/nonexistent/train-images", "missing"])


def case_synthetic(trainer, ranks):
    """All ranks end with the same parameters (the trainer checks it), and so does a second run."""
    options = ["--synthetic", "--steps", 40, "--batch", 100, "--layers", "50,40,30,7"]
    first = trainer.result(ranks, *options)
    expect(first["epochs"] == 1, "40 steps of 41 are in the first epoch")
    expect(first["test_accuracy"] > 0.9, "synthetic data is easy to learn")
    again = trainer.result(ranks, *options)
    for key in ("param_checksum", "train_loss", "test_accuracy"):
        expect(first[key] == again[key], f"{key} differs in a second run")
    # 41 batches: 40 of 100 samples and one of 96.
    longer = trainer.result(ranks, "--synthetic", "--steps", 42, "--batch", 100)
    expect(longer["epochs"] == 2, "step 42 is in the second epoch")


def case_same_batches(trainer):
    """Uneven and empty shards change the sum's rounding, and nothing else."""
    options = ["--synthetic", "--epochs", 1, "--layers", "50,40,7"]
    for batch, many in ((100, 3), (100, 4), (2, 4)):
        steps = ["--steps", 60, "--batch", batch]
        one = trainer.result(1, *options, *steps)
        other = trainer.result(many, *options, *steps)
        expect(abs(one["train_loss"] - other["train_loss"]) < 1e-4, "the loss differs")
    per_rank = trainer.result(3, *options, "--steps", 30, "--batch-per-rank", 20)
    together = trainer.result(3, *options, "--steps", 30, "--batch", 60)
    expect(per_rank["param_checksum"] == together["param_checksum"], "--batch-per-rank 20 on 3")


def case_one_epoch(trainer):
    """Real data: 1, 2 and 4 ranks learn the same."""
    need_fashion_mnist()
    accuracies = [trainer.result(ranks, "--epochs", 1)["test_accuracy"] for ranks in (1, 2, 4)]
    expect(min(accuracies) >= 0.84, f"accuracies {accuracies}")
    expect(max(accuracies) - min(accuracies) <= 0.01, f"accuracies {accuracies}")


def case_accuracy(trainer):
    """The bar: ten epochs at a global batch of 128, on 1, 2 and 4 ranks."""
    need_fashion_mnist()
    accuracies = [trainer.result(ranks)["test_accuracy"] for ranks in (1, 2, 4)]
    expect(min(accuracies) >= 0.885, f"accuracies {accuracies}")
    expect(max(accuracies) - min(accuracies) <= 0.005, f"accuracies {accuracies}")


def case_codecs(trainer):
    """Gradients that travel in fewer bytes teach the same: four epochs on two ranks."""
    need_fashion_mnist()
    plain = trainer.result(2, "--epochs", 4)["test_accuracy"]
    for codec in ("fp16", "bf16", "int8", "topk:0.25"):
        accuracy = trainer.result(2, "--epochs", 4, "--codec", codec)["test_accuracy"]
        expect(accuracy > plain - 0.005, f"{codec}: {accuracy}, without {plain}")
    trainer.error(2, "--synthetic", "--codec", "zip", says=["'zip' is no codec"])


def damage(folder):
    """Yields (what is wrong, the file, words of the error), one copy of the data at a time."""
    def path(name):
        return os.path.join(folder, name + ".gz")

    def change(name, edit):
        with open(os.path.join(FASHION, name + ".gz"), "rb") as file:
            content = bytearray(file.read())
        os.remove(path(name))
        with open(path(name), "wb") as file:
            file.write(edit(content))

    def flip(content):
        content[len(content) // 2] ^= 0x10
        return content

    for name, edit, words in (
            (FILES[0], lambda content: content[:100000], "cut short"),
            (FILES[0], flip, "gzip data is damaged"),
            (FILES[1], lambda content: content + b"x", "trailing garbage"),
            (FILES[2], lambda content: b"not a data file", "wrong magic number"),
            (FILES[3], None, "missing")):
        for each in FILES:
            if os.path.lexists(path(each)):
                os.remove(path(each))
            os.symlink(os.path.join(FASHION, each + ".gz"), path(each))
        if edit is None:
            os.remove(path(name))
        else:
            change(name, edit)
        yield os.path.join(folder, name), words


def case_damaged(trainer, ranks):
    """Damaged data on the last rank alone ends all of them with its error; so it does on all."""
    need_fashion_mnist()
    if ranks == 1:
        trainer.flavor = "none"
    folder = tempfile.mkdtemp()
    try:
        wrapper = ["/bin/sh", "-c", BY_RANK, "by_rank", FASHION, folder, str(ranks - 1)]
        named = [f"rank {ranks - 1}: "] if ranks > 1 else []
        for file, words in damage(folder):
            trainer.error(ranks, "--epochs", 1, wrapper=wrapper, says=[*named, file, words])
        for file, words in damage(folder):
            trainer.error(ranks, "--data", folder, says=[file, words])
            break
    finally:
        shutil.rmtree(folder)


def case_refused(trainer):
    """Errors in the options are said once, whatever the number of ranks."""
    trainer.error(2, "--bogus", says=["unknown option '--bogus'"])
    trainer.error(2, "--synthetic", "--batch", 5000, says=["--batch", "5000", "4096"])
    trainer.error(2, "--synthetic", "--lr", 1000, "--epochs", 1, says=["--lr", "finite"])
    by_rank = 'r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}; exec "$@" --seed "$r"'
    trainer.error(2, "--synthetic", wrapper=["/bin/sh", "-c", by_rank, "by_rank"],
                  says=["rank 1: ", "options differ"])
    if os.path.isdir(FASHION):
        trainer.error(2, "--layers", "100,10", says=["100 inputs", "784"])


def main():
    trainer = Trainer(*sys.argv[1:5])
    use_fast_kernels(trainer.program)
    name, _, ranks = sys.argv[5].partition(".np")
    case = globals()["case_" + name]
    try:
        case(trainer, int(ranks)) if ranks else case(trainer)
    except subprocess.TimeoutExpired as late:
        sys.exit(f"FAILED: not done after {late.timeout} s: {late.cmd}\n{late.output}")


if __name__ == "__main__":
    main()
