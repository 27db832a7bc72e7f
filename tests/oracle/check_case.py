#!/usr/bin/env python3
"""A text through everything: make_run, `lockstep merge` and `analyze`, and the
oracle's opinion of the rank files, of timeline.h5, of analysis.json, of the
identity, and of the laws.

  check_case.py --build BUILD SPEC [--set key=value ...]
"""

import argparse
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gpu_tables
import simulate


MOST_EVENTS = 3_000


def check_gpu(lockstep, run, d):
    """Tables of GPU events against the rank files, and where streams held work back against the simulation's own times."""
    checker = gpu_tables.Checker(lockstep, run)
    # The tables' oracle looks at all pairs of events: of large runs at the first rank and the last.
    numbers = sorted(checker.files)
    if d.steps * len(d.bodies["step"]) * len(numbers) > MOST_EVENTS:
        numbers = sorted({numbers[0], numbers[-1]})
    for number in numbers:
        checker.check_rank(number)
    if d.ideal_clocks and not d.missing and not d.damage and not d.ends:
        simulated = simulate.Run(d)
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
    for line in checker.bad[:20]:
        print(line)
    print(f"{'FAILED' if checker.bad else 'ok'}: {checker.compared} values of GPU tables, {len(checker.bad)} differ")
    return 1 if checker.bad or checker.compared == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("--build", required=True)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    sets = [word for s in args.set for word in ("--set", s)]
    with open(args.spec) as f:
        d = simulate.parse(f.read(), args.set)
    with tempfile.TemporaryDirectory(prefix="lockstep-oracle-") as scratch:
        run, analysis = os.path.join(scratch, "run"), os.path.join(scratch, "analysis.json")
        subprocess.run([os.path.join(args.build, "make_run"), args.spec, run] + sets, check=True)
        python = [sys.executable]
        failed = 0
        if d.ideal_clocks and not d.damage and not d.missing:
            failed |= subprocess.run(python + [os.path.join(HERE, "rank_files.py"), args.spec, run] + sets).returncode
        done = subprocess.run([os.path.join(args.build, "lockstep"), "analyze", run, "--json", analysis],
                              capture_output=True, text=True)
        if done.returncode not in (0, 3):
            print(f"lockstep analyze: exit {done.returncode}\n{done.stdout}{done.stderr}")
            return 1
        failed |= subprocess.run(python + [os.path.join(HERE, "oracle.py"), args.spec, "--check", run, "--analysis", analysis] + sets).returncode
        failed |= subprocess.run(python + [os.path.join(HERE, "identity.py"), run]).returncode
        failed |= subprocess.run(python + [os.path.join(HERE, "laws.py"), analysis]).returncode
        if d.gpu:
            failed |= check_gpu(os.path.join(args.build, "lockstep"), run, d)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
