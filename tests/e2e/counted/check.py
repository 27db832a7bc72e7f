#!/usr/bin/python3
"""Runs `counted` with and without Lockstep: same output and exit code, and the trace holds exactly the calls that the
program counted itself.

  check.py BUILD_DIR RANKS ROUNDS SEED THREADS      with another MPI's launcher and program: tests/e2e/mpis
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import jobs
except ImportError:
    print("SKIPPED: no h5py")
    sys.exit(77)

PROGRAM = next(path for path in (jobs.PROGRAMS / "counted", jobs.BUILD / "tests/counted") if path.exists())
ranks, words = int(sys.argv[2]), sys.argv[3:]

with tempfile.TemporaryDirectory() as place:
    launch, run = [*jobs.MPIRUN, "-np", ranks], jobs.Run(place + "/run")
    plain = jobs.run([*launch, PROGRAM, "plain", *words], place, timeout=120)
    traced = jobs.run([*launch, jobs.LOCKSTEP, "run", "-o", "run", "--after", "none", "--", PROGRAM, "traced", *words], place, timeout=120)
    assert (plain.returncode, traced.returncode) == (0, 0), (plain.stderr, traced.stderr)
    assert sorted(plain.stdout.splitlines()) == sorted(traced.stdout.splitlines()), traced.stdout
    files = run.files()
    assert sorted(files) == [f"rank-{rank:05}.h5" for rank in range(ranks)], files
    for rank, file in enumerate(files.values()):
        lines = (line.split() for line in open(f"{place}/traced-{rank}"))
        expected = {name: int(count) for name, count in lines}
        differ = {name: (expected.get(name), file.calls.get(name)) for name in {*expected, *file.calls}
                  if expected.get(name) != file.calls.get(name)}
        assert not differ, f"rank {rank}: {differ}"
        assert not set(file.losses) & {"RingFull", "NoRing", "SpoolWrite", "RequestUnknown"}, file.losses
        # Every operation ended.
        assert (file.column("collectives", "end_ns") > -2**63).all()
        assert (file.column("p2p", "end_ns") > -2**63).all()
    code, analysis, said = run.analyze()
    assert code in (0, 3), said
    trust = analysis["trust"]
    assert (trust["unmatched_collectives"], trust["clock_violations"], trust["dropped"]) == (0, 0, 0), trust
print("ok: every call counted by the program is in the trace")
