#!/usr/bin/env python3
"""test_torch.py STEPS - compares the update kernels with torch.optim over a number of steps.

STEPS is the program made of steps.c. Exit status 77, said aloud, where torch is not installed.
torch rounds a product and a sum at once where the CPU can, so the last bits differ.
"""

import subprocess
import sys

try:
    import torch
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-torch)")
    sys.exit(77)

RULES = {"sgd": 0, "adam": 1, "adamw": 2}
COUNT = 1003
STEPS = 40

CASES = [
    ("sgd", dict(lr=0.1)),
    ("sgd", dict(lr=0.1, weight_decay=0.01)),
    ("sgd", dict(lr=0.05, momentum=0.9)),
    ("sgd", dict(lr=0.05, momentum=0.9, weight_decay=0.02, nesterov=True)),
    ("adam", dict(lr=1e-3)),
    ("adam", dict(lr=1e-2, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)),
    ("adamw", dict(lr=1e-3)),
    ("adamw", dict(lr=1e-2, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1)),
]
CLASSES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def by_torch(rule, settings, start, gradients, dtype):
    parameter = torch.nn.Parameter(start.to(dtype).clone())
    optimizer = CLASSES[rule]([parameter], **settings)
    for gradient in gradients:
        parameter.grad = gradient.to(dtype)
        optimizer.step()
    return parameter.detach(), optimizer.defaults


def by_dtrain(program, rule, defaults, start, gradients):
    beta1, beta2 = defaults.get("betas", (0, 0))
    numbers = [RULES[rule], defaults["lr"], defaults["weight_decay"], defaults.get("momentum", 0),
               int(defaults.get("nesterov", False)), beta1, beta2, defaults.get("eps", 0),
               COUNT, len(gradients)]
    data = b"".join(t.numpy().tobytes() for t in [start, *gradients])
    done = subprocess.run([program, *map(repr, numbers)], input=data, stdout=subprocess.PIPE,
                          check=True, timeout=60)
    return torch.frombuffer(bytearray(done.stdout), dtype=torch.float32)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    start = torch.randn(COUNT)
    gradients = [torch.randn(COUNT) * 10 ** -(i % 4) for i in range(STEPS)]
    failures = 0
    for rule, settings in CASES:
        truth, defaults = by_torch(rule, settings, start, gradients, torch.float64)
        single, _ = by_torch(rule, settings, start, gradients, torch.float32)
        ours = by_dtrain(sys.argv[1], rule, defaults, start, gradients)
        error = (ours.double() - truth).abs().max().item()
        theirs = (single.double() - truth).abs().max().item()
        moved = (truth - start.double()).abs().max().item()
        # As near to torch's doubles as torch's own floats are, or nearly so.
        good = moved > 0.01 and error <= max(4 * theirs, 1e-6 * moved)
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {rule} {settings}: moved {moved:.3g}, error "
              f"{error:.3g}, torch's own in float32 {theirs:.3g}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
