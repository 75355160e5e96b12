#!/usr/bin/env python3
"""test_gpt.py MPIRUN NP_OPTION... GPT_CPU TEXT

The transformer learns, at any number of ranks, from the same batches: the losses of several ranks
are those of one but for rounding. (That all ranks end with the same parameters, bit for bit, the
program sees itself, and fails otherwise.)
"""

import re
import subprocess
import sys

TOLERANCE = 0.02  # of a loss: other orders of addition grow with the steps


def losses(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False,
                          errors="replace")
    if done.returncode != 0:
        sys.exit(f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return [float(loss) for loss in re.findall(r"^step +\d+  loss (\S+)$", done.stdout, re.M)]


def main():
    *start, program, text = sys.argv[1:]
    failures = []
    for steps, batch, ranks in ((60, 16, (2, 3)), (20, 2, (3,))):
        rest = [program, text, str(steps), str(batch)]
        alone = losses(rest)
        print(f"batch {batch}: {alone}")
        if steps == 60 and not (len(alone) == 3 and alone[0] > 3 and alone[-1] < 2.8):
            failures.append(f"it does not learn: {alone}")
        for size in ranks if start else ():
            several = losses([*start, str(size), *rest])
            print(f"  {size} ranks: {several}")
            if len(several) != len(alone) or any(
                    abs(a - b) > TOLERANCE for a, b in zip(alone, several)):
                failures.append(f"{size} ranks: {several}, and alone {alone}")
    sys.exit("\n".join(failures) or 0)


if __name__ == "__main__":
    main()
