#!/usr/bin/env python3
"""test_trainers.py MPIRUN_SH FLAVOR LAUNCHER FOLDER CASE.npRANKS - the trainers on GPUs beside the one
on the CPU; FOLDER has all three. The arguments are those of test_mlp.py, which has the rest.
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
import test_mlp  # noqa: E402
from test_mlp import Trainer, expect  # noqa: E402

# Rows that do not fill a vector, and an epoch of 40 batches of 100 samples and one of 96: the first
# of the second epoch has other sizes than the one before.
SYNTHETIC = ["--synthetic", "--layers", "50,40,30,7", "--batch", 100, "--steps", 43]
# With columns of whole 16 bytes, which tensor cores may ask for.
ALIGNED = ["--synthetic", "--layers", "48,40,32,8", "--batch", 100, "--steps", 43]


def near(one, other, loss, accuracy):
    """Trained alike, but for rounding."""
    expect(abs(one["train_loss"] - other["train_loss"]) <= loss * one["train_loss"],
           f"losses {one['train_loss']} and {other['train_loss']}")
    expect(abs(one["test_accuracy"] - other["test_accuracy"]) <= accuracy,
           f"accuracies {one['test_accuracy']} and {other['test_accuracy']}")


def case_cublas(cpu, cuda, cublas, ranks):
    """The shortest trainer: all ranks learn their samples."""
    done = cublas.run(ranks)
    expect(done.returncode == 0, f"exit status {done.returncode}")
    told = re.findall(r"loss (\S+) after 100 steps on (\d+) GPUs", done.stdout)
    expect(len(told) == 1 and int(told[0][1]) == ranks, "the mean loss is told once")
    expect(float(told[0][0]) < 0.01, f"the loss is {told[0][0]}")


def case_fp32(cpu, cuda, cublas, ranks):
    """The CPU's curve; a graph changes no bit of it, a sharded optimizer only how sums are made."""
    want = cpu.result(1, *SYNTHETIC)
    plain = cuda.result(ranks, *SYNTHETIC, "--precision", "fp32")
    near(want, plain, loss=1e-4, accuracy=0.003)
    graph = cuda.result(ranks, *SYNTHETIC, "--precision", "fp32", "--graph")
    for key in ("param_checksum", "train_loss", "test_accuracy"):
        expect(plain[key] == graph[key], f"{key} differs with a graph")
    near(want, cuda.result(ranks, *SYNTHETIC, "--precision", "fp32", "--sharded"), loss=1e-4,
         accuracy=0.003)


def case_precision(cpu, cuda, cublas, ranks):
    """Fewer bits of mantissa learn about as much; masters in fp32 keep small steps."""
    want = cpu.result(1, *ALIGNED)
    for precision, loss in ("tf32", 0.002), ("bf16", 0.01):
        for option in [], ["--graph"], ["--sharded"], ["--tune"]:
            near(want, cuda.result(ranks, *ALIGNED, "--precision", precision, *option),
                 loss=loss, accuracy=0.01)
            expect("bias and ReLU of 3 of 3" in cuda.output, "the products have their epilogues")


def case_plain(cpu, cuda, cublas, ranks):
    """Without a product that has an epilogue kernels do the same, and the report says so."""
    want = cpu.result(1, *SYNTHETIC)
    for missing, bias, by_weight, by_input in (
            ("BIAS", 2, 3, 2), ("DRELU", 3, 3, 0), ("BGRADA", 3, 0, 2),
            ("RELU_AUX_BIAS", 1, 3, 0), ("BIAS,RELU_AUX_BIAS,BGRADA,DRELU", 0, 0, 0)):
        os.environ["STANDIN_NO_EPILOGUE"] = missing
        near(want, cuda.result(ranks, *SYNTHETIC, "--precision", "fp32"), loss=1e-4, accuracy=0.003)
        said = (f"bias and ReLU of {bias} of 3 layers, the bias's gradient of {by_weight} of 3, "
                f"ReLU's gradient of {by_input} of 2")
        expect(said in cuda.output, f"the report does not say {said!r}")
    # All of it, on the type and with the graphs for which it is likely.
    near(want, cuda.result(ranks, *SYNTHETIC, "--precision", "bf16", "--graph"), loss=0.02,
         accuracy=0.01)
    del os.environ["STANDIN_NO_EPILOGUE"]
    # Algorithms that are proposed, but then do not work: the next one does.
    os.environ["STANDIN_FAULT"] = "cublasLtMatmul:0:1:oom,cublasLtMatmul:0:3:oom"
    near(want, cuda.result(ranks, *SYNTHETIC, "--precision", "fp32"), loss=1e-4, accuracy=0.003)
    expect("bias and ReLU of 3 of 3" in cuda.output, "the next algorithm has an epilogue")


def case_fashion(cpu, cuda, cublas, ranks):
    """Real data: 60 batches of it."""
    test_mlp.need_fashion_mnist()
    want = cpu.result(1, "--steps", 60)
    near(want, cuda.result(ranks, "--steps", 60, "--precision", "fp32"), loss=1e-4, accuracy=0.003)


def case_short(cpu, cuda, cublas, ranks):
    """A training that is over before it is warm has times, too; so has one of an epoch a step."""
    cuda.flavor = "none"
    for steps in 1, 3, 5:
        cuda.result(ranks, "--synthetic", "--layers", "48,40,8", "--batch", 100, "--steps", steps,
                    "--graph")
        whole = cuda.result(ranks, "--synthetic", "--layers", "48,40,8", "--samples", 500,
                            "--batch", 500, "--steps", steps, "--graph")
        expect(whole["epochs"] == steps, f"{whole['epochs']} epochs of a batch each")


def case_delayed(cpu, cuda, cublas, ranks):
    """Streams that take their time, or go through host memory, change nothing."""
    want = cpu.result(1, *ALIGNED)
    for setting in ({"STANDIN_DELAY_US": "200", "STANDIN_POLLS": "5"},
                    {"DTRAIN_GPU": "staged", "STANDIN_SAME_UUID": "1", "STANDIN_DELAY_US": "50"}):
        os.environ.update(setting)
        for option in [], ["--graph", "--sharded"]:
            near(want, cuda.result(ranks, *ALIGNED, "--precision", "fp32", *option), loss=1e-4,
                 accuracy=0.003)
        for name in setting:
            del os.environ[name]


def case_fails(cpu, cuda, cublas, ranks):
    """What fails on the last rank ends them all, soon, with its error."""
    last = ranks - 1
    named = [f"rank {last}: "] if ranks > 1 else []
    if ranks == 1:
        cuda.flavor = "none"
    for fault, text in (("cublasLtCreate:{}:1:error", "cublasLtCreate"),
                        ("cudaHostAlloc:{}:1:oom", "pinned memory")):
        os.environ["STANDIN_FAULT"] = fault.format(last)
        cuda.error(ranks, *ALIGNED, says=[*named, text])
    # The first 8 products are tries.
    for fault, text, option in (("cublasLtMatmul:{}:99:error", "cublasLtMatmul", []),
                                ("cublasLtMatmul:{}:12:error", "cublasLtMatmul", ["--graph"]),
                                ("cudaGraphInstantiate:{}:2:oom", "a CUDA graph", ["--graph"])):
        os.environ["STANDIN_FAULT"] = fault.format(last)
        done = cuda.run(ranks, *ALIGNED, *option, seconds=test_mlp.ERROR_SECONDS)
        expect(done.returncode != 0, f"exit status {done.returncode}")
        expect(text in done.stderr, f"the error does not say {text!r}")
        expect("RESULT" not in done.stdout, "RESULT after an error")


def main():
    start, folder = sys.argv[1:4], sys.argv[4]
    cpu, cuda, cublas = (Trainer(*start, os.path.join(folder, name))
                         for name in ("mlp_cpu", "mlp_cuda", "mlp_cublas"))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    test_mlp.use_fast_kernels(cpu.program)
    name, _, ranks = sys.argv[5].partition(".np")
    globals()["case_" + name](cpu, cuda, cublas, int(ranks))


if __name__ == "__main__":
    main()
