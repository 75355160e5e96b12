#!/usr/bin/env python3
"""check_symbols.py LIBRARY MAP SONAME HEADER… [--absent HEADER…] - what libdtrain.so shows.

Exported are exactly the functions that the headers declare, except those of headers that this
build is without, and all of them are in the map and in its one node; needed are only libc, zlib and
MPI; there are no text relocations.
"""

import re
import subprocess
import sys

NODE = "DTRAIN_0"
# libc's parts, zlib, and MPI's under the names of Open MPI, MPICH and Intel MPI.
LIBRARIES = re.compile(r"(libc|libm|libz|libpthread|ld-linux[\w-]*|libmpi\w*|libmpich)\.so(\.\d+)*$")
# Names without a glibc version that may stay open: MPI's, and the linker's own weak ones.
OPEN_NAMES = re.compile(r"P?MPI_\w+|MPIR_\w+|MPIX_\w+|ompi_\w+|crc32_z|_ITM_\w+|__gmon_start__")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def declared(headers):
    names = set()
    for header in headers:
        with open(header, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
        for prototype in re.findall(r"\bDTRAIN_API\b(?!\s*__)([^;{]*);", text):
            names.add(re.search(r"\b(\w+)\s*\(", prototype).group(1))
        undeclared = set(re.findall(r"\b(dtrain_\w+)\s*\(", text)) - names
        for name in sorted(undeclared):
            print(f"{header}: {name} is declared without DTRAIN_API")
            names.add(name)
    return names


def mapped(path):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
    nodes = re.findall(r"(\w+)\s*\{\s*global:(.*?)local:\s*\*;\s*\}", text, flags=re.S)
    if [node for node, _ in nodes] != [NODE]:
        return None
    return set(re.findall(r"(\S+);", nodes[0][1]))


def exported(library):
    """Names by version node."""
    found = {}
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        _, kind, symbol = line.split()
        name, _, version = symbol.partition("@@")
        if kind != "A":  # the version node itself
            found[name] = version
    return found


def compare(what, found, expected):
    faults = [f"{what}: {name} is missing" for name in sorted(expected - found)]
    return faults + [f"{what}: {name} is too much" for name in sorted(found - expected)]


def check_open_names(library):
    faults = []
    for line in run("nm", "-D", "--undefined-only", library).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if not version.lstrip("@").startswith("GLIBC_") and not OPEN_NAMES.fullmatch(name):
            faults.append(f"undefined symbol {name} is neither libc's, zlib's nor MPI's")
    return faults


def check_dynamic_section(library, soname):
    section = run("readelf", "-dW", library)
    found = re.findall(r"\(SONAME\).*\[(.*)\]", section)
    faults = [] if found == [soname] else [f"SONAME is {found}, not {soname}"]
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", section):
        if not LIBRARIES.match(needed):
            faults.append(f"needs {needed}")
    if "TEXTREL" in section:
        faults.append("has text relocations")
    if re.search(r"\((RPATH|RUNPATH)\).*(/build/|/tmp/)", section):
        print("note: the build folder is in the RUNPATH; the installed library has none")
    return faults


def main():
    if len(sys.argv) < 5:
        print(__doc__)
        return 2
    library, map_path, soname, headers = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    absent = []
    if "--absent" in headers:
        cut = headers.index("--absent")
        headers, absent = headers[:cut], headers[cut + 1:]
    prototypes = declared(headers)
    in_map = mapped(map_path)
    symbols = exported(library)
    if in_map is None or not {"dtrain_init", "dtrain_shutdown"} <= prototypes:
        print("cannot read the map or the headers: nothing was checked")
        return 1
    faults = compare("map", in_map, prototypes | declared(absent))
    faults += compare("library", set(symbols), prototypes)
    faults += [f"{name} is in node {node!r}" for name, node in sorted(symbols.items())
               if node != NODE]
    faults += check_open_names(library)
    faults += check_dynamic_section(library, soname)
    for fault in faults:
        print(fault)
    print(f"{len(prototypes)} functions, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
