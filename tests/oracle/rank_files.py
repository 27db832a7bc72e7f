#!/usr/bin/env python3
"""make_run against the oracle's own simulation: same rows, same nanoseconds.

  rank_files.py SPEC RUN [--set key=value ...]
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import identity
import oracle
import simulate


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec")
    parser.add_argument("run")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    with open(args.spec) as f:
        d = simulate.parse(f.read(), args.set)
    if not d.ideal_clocks or d.damage:
        print("needs ideal clocks and whole files")
        return 2
    run = simulate.Run(d)
    bad, rows = [], 0

    def same(what, got, want):
        nonlocal rows
        rows += len(want)
        if got != want:
            first = next((i for i, (g, w) in enumerate(zip(got, want)) if g != w), min(len(got), len(want)))
            bad.append(f"{what}: {len(got)} and {len(want)} rows, first difference at {first}: "
                       f"{got[first:first + 1]} oracle {want[first:first + 1]}")

    def key(op):
        if op.get("p2p"):
            return (1, op["message"], op["receive"], op["mode"], op["begin"], op["end"])
        return (0, op["seq"], op["start"], op["kind"], op["mode"], op["bytes"], op["members"], op["root"] if op["kind"] in (6, 7, 8, 9) else -1,
                op["begin"], op["post_end"], op["last_incomplete"] or 0, op["wait_begin"] or 0, op["end"] or 0)

    wanted = oracle.activities_of(run)
    read = [identity.read_rank(os.path.join(args.run, "ranks", f"rank-{want.rank:05d}.h5"), want.rank) for want in wanted]
    identity.resolve_nccl(read)
    for want, got in zip(wanted, read):
        where = f"rank {want.rank} "
        same(where + "calls", sorted(got.all_calls), sorted(want.all_calls))
        same(where + "training calls", sorted(got.training_calls), sorted(want.training_calls))
        same(where + "input ranges", sorted(got.inputs), sorted(want.inputs))
        same(where + "kernels", sorted(got.kernels), sorted(want.kernels))
        same(where + "copies", sorted(got.copies), sorted(want.copies))
        same(where + "operations", sorted(map(key, got.ops)), sorted(map(key, want.ops)))
    for line in bad[:20]:
        print(line)
    print(f"{'FAILED' if bad else 'ok'}: {rows} rows of {d.ranks} ranks, {len(bad)} tables differ")
    return 1 if bad or rows == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
