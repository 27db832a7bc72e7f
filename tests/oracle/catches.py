#!/usr/bin/env python3
"""The identity test must fail when a stored number is wrong by one nanosecond.

  catches.py --build BUILD SPEC
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import h5py

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import identity


def add(path, table, column, row, ns):
    with h5py.File(path, "r+") as f:
        f[table][column][row] += ns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("--build", required=True)
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-catches-") as scratch:
        run = os.path.join(scratch, "run")
        subprocess.run([os.path.join(args.build, "make_run"), args.spec, run], check=True)
        subprocess.run([os.path.join(args.build, "lockstep"), "merge", run], check=True, capture_output=True)
        cases = [(None, None, None, 0, 0), ("timeline.h5", "step_ranks", "compute_ns", 5, 1),
                 ("timeline.h5", "step_ranks", "exposed_wait_ns", 3, -1),
                 ("timeline.h5", "rank_totals", "idle_ns", 1, 1),
                 ("timeline.h5", "step_ranks", "mpi_io_ns", 2, 1),
                 ("timeline.h5", "rank_totals", "late_sender_ns", 0, -1),
                 ("ranks/rank-00001.h5", "collectives", "begin_ns", 4, 1),
                 ("ranks/rank-00000.h5", "mpi_calls", "duration_ns", 4, 1)]
        for i, (name, table, column, row, ns) in enumerate(cases):
            copy = os.path.join(scratch, f"copy{i}")
            shutil.copytree(run, copy)
            if name:
                add(os.path.join(copy, name), table, column, row, ns)
            found = bool(identity.check(copy)[0])
            good = found == bool(name)
            failed += not good
            print(("ok      " if good else "FAILED  ") + (f"{table}.{column} wrong by {ns} ns" if name else "untouched") +
                  (": found" if found else ": passes"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
