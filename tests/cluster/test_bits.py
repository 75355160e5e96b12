#!/usr/bin/env python3
"""test_bits.py MPIRUN BITS PLACEMENT … - the same bits, in every way that bits.c reduces.

Within a placement (nodes.py says how one is written) all ways have to agree. All placements have
to agree with each other too, and with the reference that bits.c computes, but for those that end
in *: there docs/design.md promises less, since a node does not hold a power of two of consecutive
ranks.
"""

import collections
import sys

from nodes import Placement, Runner, expect


def checksums(output):
    """{what is computed: {checksum: [how it was computed]}}"""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in output.splitlines():
        what, how, checksum = line.split(" | ")
        found[what][checksum].append(how)
    return found


def main():
    runner = Runner(sys.argv[1])
    agreed = {}
    for text in sys.argv[3:]:
        is_apart = text.endswith("*")
        placement = Placement(text.rstrip("*"))
        found = checksums(runner.run(placement, sys.argv[2]))
        expect(len(found) >= 8, f"on {placement}: {len(found)} kinds")
        for what, ways in found.items():
            if is_apart:
                ways = {checksum: how for checksum, how in ways.items() if how != ["reference"]}
            expect(len(ways) == 1, f"on {placement}: {what} differs: {dict(ways)}")
            checksum = next(iter(ways))
            if not is_apart:
                first = agreed.setdefault(what, (checksum, placement))
                expect(first[0] == checksum, f"{what} on {placement}: {checksum}, "
                                             f"on {first[1]}: {first[0]}")
    for what, (checksum, _) in agreed.items():
        print(f"{what}: {checksum}")


if __name__ == "__main__":
    main()
