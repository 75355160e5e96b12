"""test_page.py PAGE - runs the Python programs of a page of the documentation, one after the other
as one program. Those about torch or GPUs are left out, aloud, where there is none."""
import re
import sys

with open(sys.argv[1], encoding="utf-8") as page:
    text = page.read()
try:
    import torch  # noqa: F401
    has_torch = True
except ImportError:
    has_torch = False
    print("without torch: its programs are left out")


def has_gpu():
    """Whether the library finds one; the page's first program has called init()."""
    try:
        names["dtrain"].cuda_device()
        return True
    except names["dtrain"].Unsupported as why:
        print(f"without a GPU: its programs are left out ({why})")
        return False


programs = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
assert len(programs) >= 6, f"only {len(programs)} programs"
names = {"__name__": "__main__"}
for program in programs:
    line = text.count("\n", 0, program.start(1))
    if "torch" in program[1] and not has_torch:
        continue
    if "cuda" in program[1] and not has_gpu():
        continue
    # Blank lines keep the page's line numbers in tracebacks.
    exec(compile("\n" * line + program[1], sys.argv[1], "exec"), names)
print(f"{len(programs)} programs")
