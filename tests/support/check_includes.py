#!/usr/bin/env python3
"""check_includes.py [ROOT] - holds the direction of dependencies in src/ and include/.

Reads #include lines and a few words that may stand in one place only. Before it looks at the
tree it runs every rule on an example that breaks it, so that it cannot pass by being blind.
Prints one line a violation; exit status 1 when there are any.
"""

import os
import re
import sys

# What each folder of src/ may include, besides itself and the public headers.
LAYERS = {
    "base": set(),
    "reduce": {"base"},
    "optim": {"reduce", "base"},
    "observe": {"base"},
    "tune": {"base"},
    "elastic": {"base"},
    "comm": {"reduce", "optim", "base"},
    "core": {"comm", "reduce", "optim", "observe", "tune", "elastic", "base"},
    "train": {"core", "optim", "reduce", "base"},
    "api": {"train", "core", "comm", "reduce", "optim", "observe", "tune", "elastic", "base"},
    "tools": {"base"},
}

# Folders of comm/. Building blocks (what moves data or messages) do not see each other but for
# what is named here; worlds (what finds the ranks) are made of blocks and do not see each other.
# Shared memory comes to be by descriptors that are passed over a socket.
BLOCKS = {"algo": set(), "detect": {"sock"}, "hier": set(), "ring": {"algo"}, "shm": {"algo", "sock"}, "sock": set(),
          "nccl": set()}
WORLDS = {"self", "loopback", "mpi"}
# The headers of worlds that are seen from outside, and from where: whoever chooses a world has to
# name it. They include nothing of a communication library.
OPEN_WORLD_HEADERS = {
    "comm/self/self_world.h": ["src/comm/registry.c", "src/comm/mpi/"],
    "comm/mpi/mpi_world.h": ["src/comm/registry.c", "src/comm/mpi_absent.c", "src/core/",
                             "src/api/"],
}

# Headers of other libraries, and where they may be included (a folder ends in /).
FOREIGN = {
    r"mpi\.h": ["src/comm/mpi/", "include/dtrain/dtrain_mpi.h"],
    r"dtrain/dtrain_mpi\.h": ["src/api/", "src/tools/"],
    r"nccl\.h": ["src/comm/nccl/"],
    r"cuda(_runtime(_api)?)?\.h": ["cuda/", "src/comm/nccl/"],
}

# Words that stand in few places: (what, pattern, where).
WORDS = [
    ("the environment is read", r"\b(?:secure_)?getenv\s*\(|\benviron\b", ["src/base/config.c"]),
    ("a library ends its process", r"\b(?:_?exit|_Exit|quick_exit|abort)\s*\(", ["src/tools/", "src/base/fault.c"]),
]

# #if on a backend: CMake picks whole files instead. A backend may look at its own library's.
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)$", re.M)
FEATURE_MACRO = re.compile(r"\b(?:DT|DTRAIN)_(?:HAVE|WITH|USE)_\w+|\bHAVE_(?:MPI|CUDA|NCCL)\b"
                           r"|\bDTRAIN_(?:MPI|CUDA|NCCL)\b")
LIBRARY_MACROS = [
    (re.compile(r"\b(?:OPEN_MPI|OMPI_\w+|MPICH\w*|I_MPI_\w+|MPI_(?:SUB)?VERSION)\b"), "src/comm/mpi/"),
    (re.compile(r"\bNCCL_\w+"), "src/comm/nccl/"),
    (re.compile(r"\b(?:__CUDACC__|__CUDA_ARCH__|CUDART_VERSION|CUDA_VERSION)\b"), "cuda/"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]*)"|<([^>]*)>|(\S.*))', re.M)


def allowed(path, places):
    return any(path.startswith(p) if p.endswith("/") else path == p for p in places)


def without_comments(text, keep_strings):
    """Blanks comments (and strings) but keeps line numbers."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        found = match.group(0)
        if keep_strings and not found.startswith("/"):
            return found
        return re.sub(r"[^\n]", " ", found)

    return token.sub(blank, text)


def check_comm_include(path, target):
    """Rules inside comm/: `target` is the included path, below comm/ too or not."""
    parts = path.split("/")
    mine = parts[2] if len(parts) > 3 else None
    names = target.split("/")
    other = names[1] if len(names) > 2 else None
    if other is None or other == mine:
        return None
    if target in OPEN_WORLD_HEADERS and allowed(path, OPEN_WORLD_HEADERS[target]):
        return None
    if other in WORLDS:
        return f"{target}: comm/{other}/ is a world, its inside is its own"
    if other not in BLOCKS:
        return f"{target}: unknown folder of comm/, name it in check_includes.py"
    if mine in WORLDS or (mine in BLOCKS and other in BLOCKS[mine]):
        return None
    return f"{target}: only worlds are made of comm/{other}/"


def check_internal_include(path, target):
    """Rules for #include "…" in src/."""
    mine = path.split("/")[1]
    names = target.split("/")
    if names[0] == "cuda":
        return None if path.startswith("src/comm/nccl/") else f"{target} belongs to src/comm/nccl/"
    if len(names) < 2 or names[0] not in LAYERS:
        return f'"{target}": internal headers are named from src/, as "base/log.h"'
    other = names[0]
    if other != mine and other not in LAYERS.get(mine, set()):
        return f"{target}: {mine}/ must not include {other}/"
    if other == "comm":
        return check_comm_include(path, target)
    return None


def check_include(path, quoted, angled):
    target = quoted if quoted is not None else angled
    for pattern, places in FOREIGN.items():
        if re.fullmatch(pattern, target) and not allowed(path, places):
            return f"{target} belongs to {', '.join(places)}"
    if not path.startswith("src/"):
        return None
    if angled is not None:
        if angled.split("/")[0] in LAYERS:
            return f'<{angled}>: internal headers are included as "{angled}"'
        return None
    return check_internal_include(path, quoted)


def check_condition(path, condition):
    if FEATURE_MACRO.search(condition):
        return f"#if on a backend ({condition.strip()}): let CMake pick the file"
    for pattern, place in LIBRARY_MACROS:
        if pattern.search(condition) and not path.startswith(place):
            return f"#if on a library ({condition.strip()}) outside {place}"
    return None


def check_text(path, text):
    """All violations in one file, as (line, message)."""
    found = []

    def add(source, position, message):
        if message:
            found.append((source.count("\n", 0, position) + 1, message))

    code = without_comments(text, keep_strings=True)
    for match in INCLUDE.finditer(code):
        quoted, angled, computed = match.groups()
        if computed:
            add(code, match.start(), f"#include {computed.strip()}: name the file")
        else:
            add(code, match.start(), check_include(path, quoted, angled))
    for match in CONDITION.finditer(code):
        add(code, match.start(), check_condition(path, match.group(1)))
    if path.startswith("src/"):
        bare = without_comments(text, keep_strings=False)
        for what, pattern, places in WORDS:
            if allowed(path, places):
                continue
            for match in re.finditer(pattern, bare):
                add(bare, match.start(), f"{what} ({match.group(0).strip('( ')}) outside "
                    + ", ".join(places))
    return [(line, message) for line, message in sorted(set(found))]


BROKEN = [
    ("src/base/log.c", '#include "core/runtime.h"'),
    ("src/base/log.c", '#include "reduce/reduce.h"'),
    ("src/base/log.c", '#include "log.h"'),
    ("src/base/log.c", '#include "../core/runtime.h"'),
    ("src/base/log.c", "#include <base/log.h>"),
    ("src/base/log.c", "#include HEADER"),
    ("src/reduce/reduce.c", '#include "comm/backend.h"'),
    ("src/optim/update.c", '#include "comm/world.h"'),
    ("src/reduce/reduce.c", '#include "optim/update.h"'),
    ("src/observe/stall.c", '#include "core/runtime.h"'),
    ("src/tune/tune.c", '#include "comm/world.h"'),
    ("src/comm/world.c", '#include "core/runtime.h"'),
    ("src/comm/world.c", '#include "comm/mpi/mpi_world.h"'),
    ("src/comm/ring/ring.c", '#include "comm/loopback/loopback.h"'),
    ("src/comm/ring/ring.c", '#include "comm/sock/sock_control.h"'),
    ("src/comm/mpi/join.c", '#include "comm/loopback/loopback.h"'),
    ("src/comm/ring/ring.c", '#include "comm/shm/shm.h"'),
    ("src/comm/sock/sock.c", '#include "comm/shm/shm.h"'),
    ("src/comm/loopback/loopback.c", '#include "comm/self/self_world.h"'),
    ("src/comm/registry.c", '#include "comm/shm/shm.h"'),
    ("src/comm/mpi/join.c", '#include "core/queue.h"'),
    ("src/comm/mpi/join.c", '#include "comm/strange/strange.h"'),
    ("src/core/runtime.c", '#include "api/features.h"'),
    ("src/core/runtime.c", '#include "comm/ring/ring.h"'),
    ("src/core/runtime.c", '#include "train/gradset.h"'),
    ("src/train/gradset.c", '#include "comm/backend.h"'),
    ("src/train/gradset.c", '#include "api/world.h"'),
    ("src/core/runtime.c", '#include "comm/loopback/loopback.h"'),
    ("src/tools/bench.c", '#include "core/runtime.h"'),
    ("src/core/runtime.c", '#include "cuda/kernels.h"'),
    ("src/core/runtime.c", '#include "comm/nccl/nccl_comm.h"'),
    ("src/core/runtime.c", "#include <mpi.h>"),
    ("src/core/runtime.c", '  #  include "mpi.h"'),
    ("src/core/runtime.c", "#include <dtrain/dtrain_mpi.h>"),
    ("src/comm/ring/ring.c", "#include <nccl.h>"),
    ("src/comm/mpi/join.c", "#include <cuda_runtime.h>"),
    ("include/dtrain/dtrain.h", "#include <mpi.h>"),
    ("include/dtrain/dtrain.h", "#include <cuda_runtime_api.h>"),
    ("src/core/runtime.c", 'int f(void) { return getenv("HOME") != 0; }'),
    ("src/comm/sock/listen.c", 'char *s = secure_getenv ("HOME");'),
    ("src/base/log.c", "extern char **environ;"),
    ("src/core/runtime.c", "void f(void) { abort(); }"),
    ("src/base/log.c", "void f(void) { abort(); }"),
    ("src/core/runtime.c", "void f(void) { _exit (1); }"),
    ("src/core/runtime.c", "#if DT_HAVE_MPI\n#endif"),
    ("src/api/build.c", "#ifdef DTRAIN_HAVE_NCCL\n#endif"),
    ("src/core/runtime.c", "#if 0\n#elif defined(HAVE_CUDA)\n#endif"),
    ("src/api/build.c", "#ifdef OPEN_MPI\n#endif"),
    ("src/comm/mpi/join.c", "#if defined(__CUDACC__)\n#endif"),
]

SOUND = [
    ("src/comm/nccl/move.c", '#include "cuda/kernels.h"\n#include <cuda_runtime_api.h>\n#include <nccl.h>'),
    ("src/base/config.c", 'char *s = getenv("HOME");\nextern char **environ;'),
    ("src/base/log.c", '#include "base/log.h"\n#include <dtrain/dtrain.h>\n#include <stdio.h>'),
    ("src/base/log.c", "/* getenv( is not here, nor\n#include <mpi.h> */\n// abort()"),
    ("src/base/log.c", 'const char *s = "getenv(\\"x\\") abort()";'),
    ("src/base/log.c", "void f(void) { atexit(0); dtrain_abort(1, 0); MPI_Abort(0, 1); on_exit(0, 0); }"),
    ("src/comm/registry.c", '#include "comm/mpi/mpi_world.h"\n#include "comm/self/self_world.h"'),
    ("src/comm/mpi/join.c", '#include <mpi.h>\n#include "comm/ring/ring.h"\n#include "reduce/half.h"'),
    ("src/comm/mpi/join.c", "#ifdef OPEN_MPI\n#endif"),
    ("src/comm/mpi/join.c", '#include "comm/shm/shm.h"\n#include "comm/self/self_world.h"'),
    ("src/tools/bench/bench_mpi.c", "#include <dtrain/dtrain_mpi.h>"),
    ("src/comm/ring/ring.c", '#include "comm/algo/ring.h"\n#include "comm/p2p.h"'),
    ("src/core/runtime.c", '#include "comm/registry.h"\n#include "observe/stall.h"'),
    ("src/api/dtrain_mpi.c", '#include <dtrain/dtrain_mpi.h>\n#include "comm/mpi/mpi_world.h"'),
    ("include/dtrain/dtrain_mpi.h", "#include <mpi.h>"),
    ("src/reduce/kernel.c", "#if defined(__AVX2__)\n#endif"),
]


def self_test():
    faults = []
    for path, text in BROKEN:
        if not check_text(path, text):
            faults.append(f"not noticed in {path}: {text!r}")
    for path, text in SOUND:
        for _, message in check_text(path, text):
            faults.append(f"wrongly refused in {path}: {text!r}: {message}")
    return faults


def sources(root):
    for top in ("src", "include", "cuda"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for name in sorted(files):
                if name.endswith((".c", ".h", ".cu", ".cuh", ".in", ".inc")):
                    full = os.path.join(folder, name)
                    yield full, os.path.relpath(full, root).replace(os.sep, "/")


def main():
    faults = self_test()
    for fault in faults:
        print(f"check_includes.py: self-test: {fault}")
    if faults:
        return 1
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    seen = violations = 0
    for full, path in sources(root):
        seen += 1
        with open(full, encoding="utf-8") as file:
            text = file.read()
        for line, message in check_text(path, text):
            violations += 1
            print(f"{path}:{line}: {message}")
    if seen < 10:
        print(f"check_includes.py: only {seen} files under {root}: nothing was checked")
        return 1
    print(f"{seen} files, {len(BROKEN) + len(SOUND)} examples, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
