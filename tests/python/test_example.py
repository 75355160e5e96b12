"""test_example.py PATTERN EXAMPLE [ARGUMENT …] -- [LAUNCHER …] - runs an example, alone or by a
launcher; the last line that it prints must match the pattern. Exit status 77: skipped."""
import importlib.util
import os
import re
import subprocess
import sys

pattern, command = sys.argv[1], sys.argv[2:]
command, launcher = command[:command.index("--")], command[command.index("--") + 1:]
with open(command[0], encoding="utf-8") as file:
    source = file.read()
for module, where in (("numpy", "Debian: python3-numpy"), ("torch", "Debian: python3-torch"),
                      ("jax", "PyPI: jax")):
    if f"import {module}" in source and importlib.util.find_spec(module) is None:
        print(f"skipped: Python has no {module} ({where})")
        sys.exit(77)
if "fashion-mnist" in source and not os.path.isdir("/usr/share/datasets/fashion-mnist"):
    print("skipped: no Fashion-MNIST (Debian: dataset-fashion-mnist)")
    sys.exit(77)
done = subprocess.run([*launcher, sys.executable, *command], text=True, check=False,
                      stdout=subprocess.PIPE)
print(done.stdout)
lines = done.stdout.strip().splitlines()
sys.exit(done.returncode or not (lines and re.search(pattern, lines[-1])))
