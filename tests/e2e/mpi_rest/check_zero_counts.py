#!/usr/bin/python3
"""Runs `zero_counts` under mpirun: who has nothing to give is no reason to doubt clocks, and is waited for by nobody.

  check_zero_counts.py BUILD_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import h5py  # noqa: F401
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import mpi_sessions  # noqa: E402
    import rank_tables  # noqa: E402
except ImportError:
    print("SKIPPED: no h5py")
    sys.exit(77)

BUILD = os.path.abspath(sys.argv[1])
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_"))} | mpi_sessions.ENVIRONMENT
# Another MPI's launcher and programs (tests/e2e/mpis).
ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
MPIRUN = os.environ.get("LOCKSTEP_TEST_MPIEXEC", " ".join(["mpirun", *ROOT, "--oversubscribe"])).split()
PROGRAMS = os.environ.get("LOCKSTEP_TEST_PROGRAMS", BUILD + "/tests")
RANKS, ROUNDS = 4, 25
ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER = 2, 3, 4, 8, 9
UNEVEN, GIVES_NOTHING, TAKES_NOTHING = 1, 2, 4


def run(words):
    return subprocess.run(words, capture_output=True, text=True, env=ENV, timeout=100)


with tempfile.TemporaryDirectory(prefix="lockstep-zero-") as scratch:
    out = scratch + "/run"
    done = run(MPIRUN + ["-np", str(RANKS), BUILD + "/lockstep", "run", "--quiet", "-o", out, "--after", "none", "--",
                         PROGRAMS + "/zero_counts", str(ROUNDS)])
    assert done.returncode == 0, done.stderr
    for rank in range(RANKS):
        with rank_tables.open_file(f"{out}/ranks/rank-{rank:05d}.h5") as file:
            found = {(int(k), int(u)) for k, u in zip(file["collectives/kind"][:], file["collectives/uneven"][:])}
        last = rank == RANKS - 1
        expected = {(ALL_GATHER, UNEVEN | GIVES_NOTHING * last), (ALL_TO_ALL, UNEVEN | (GIVES_NOTHING | TAKES_NOTHING) * last),
                    (GATHER, UNEVEN | GIVES_NOTHING * last), (SCATTER, UNEVEN | TAKES_NOTHING * last)}
        assert {pair for pair in found if pair[1]} == expected, (rank, found)
    done = run([BUILD + "/lockstep", "analyze", "-q", out, "--json", scratch + "/a.json"])
    analysis = json.load(open(scratch + "/a.json"))
    assert analysis["trust"]["clock_violations"] == 0, analysis["trust"]
    # Barriers wait for it; of the others none does, as far as anybody can know.
    with rank_tables.open_file(out + "/timeline.h5") as file:
        table = {c: file["collectives/" + c][:] for c in ("kind", "last_rank", "uneven")}
    for kind, who, uneven in zip(table["kind"], table["last_rank"], table["uneven"]):
        assert not uneven or who != RANKS - 1, (kind, who)
print("ok")
