#!/usr/bin/env python3
"""Texts through everything: make_run, `lockstep analyze`, and the oracle's opinion of the rank files, of timeline.h5, of
analysis.json, of the identity, of the laws, and of the tables of GPU events.

  check_case.py --build BUILD SPEC... [--progress MODE...] [--set key=value ...]

--progress: each text in each of these modes.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import cases
import gpu_tables
import h5py
import identity
import laws
import oracle
import rank_files
import simulate


MOST_EVENTS = 3_000
MOST_LINES = 40


def check_gpu(lockstep, run_dir, simulated):
    """Tables of GPU events against the rank files, and where streams held work back against the simulation's own times."""
    checker, d = gpu_tables.Checker(lockstep, run_dir), simulated.d
    # The tables' oracle looks at all pairs of events: of large runs at the first rank and the last.
    numbers = sorted(checker.files)
    if d.steps * len(d.bodies["step"]) * len(numbers) > MOST_EVENTS:
        numbers = sorted({numbers[0], numbers[-1]})
    for number in numbers:
        checker.check_rank(number)
    if d.ideal_clocks and not d.missing and not d.damage and not d.ends:
        for r in simulated.ranks:
            window = checker.window[r.rank]
            want = {}
            for stream, at, ns in r.held:
                if window[0] <= at <= window[1]:
                    count, total = want.get(stream, (0, 0))
                    want[stream] = (count + 1, total + ns)
            got = {}
            for row in checker.table("stream-waits", r.rank):
                if row["held"]:
                    count, total = got.get(row["stream"], (0, 0))
                    got[row["stream"]] = (count + row["held"], total + row["held_ns"])
            checker.same(f"rank {r.rank} held back, as simulated", got, want)
    return checker.bad + ([] if checker.compared else ["GPU tables: nothing to compare"])


def check(build, spec, sets):
    """Lines about what differs."""
    with open(spec) as f:
        simulated = simulate.Run(simulate.parse(f.read(), sets))
    d, lockstep = simulated.d, os.path.join(build, "lockstep")
    with tempfile.TemporaryDirectory(prefix="lockstep-oracle-") as scratch:
        run, path = os.path.join(scratch, "run"), os.path.join(scratch, "analysis.json")
        for command in ([os.path.join(build, "make_run"), spec, run] + [word for s in sets for word in ("--set", s)],
                        [lockstep, "analyze", run, "-q", "--json", path]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode not in (0, 3):
                return [f"{command}: exit {done.returncode}", *(done.stdout + done.stderr).splitlines()]
        with open(path) as f:
            analysis = json.load(f)
        activities = oracle.activities_of(simulated)
        with h5py.File(os.path.join(run, "timeline.h5"), "r") as timeline:
            read = identity.read_run(run, timeline)
            parts = [rank_files.compare(activities, read)[0] if d.ideal_clocks and not d.damage and not d.missing else [],
                     oracle.check(simulated, oracle.expect(simulated, activities), run, analysis)[0],
                     identity.compare(timeline, read)[0], laws.Laws(analysis).all(),
                     check_gpu(lockstep, run, simulated) if d.gpu else []]
    return [line for part in parts for line in part[:MOST_LINES]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="+")
    parser.add_argument("--build", required=True)
    parser.add_argument("--entry")
    parser.add_argument("--progress", nargs="+", default=[None])
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()

    def case(spec, mode):
        path = pathlib.Path(spec)
        name = path.parent.name if path.name == "run.trace" else path.stem
        sets = args.set + ([f"progress={mode}"] if mode else [])
        return "oracle." + name + (f".{mode}" if mode else ""), lambda: check(args.build, spec, sets)

    return cases.run(args.build, args.entry, itertools.starmap(case, itertools.product(args.specs, args.progress)))


if __name__ == "__main__":
    sys.exit(main())
