#!/usr/bin/python3
"""Runs `counted` under mpirun with and without Lockstep: same output and exit
code, and the trace holds exactly the calls that the program counted itself.

  check.py BUILD_DIR RANKS ROUNDS SEED THREADS
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import h5py
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import rank_tables  # noqa: E402
except ImportError:
    print("SKIPPED: no h5py")
    sys.exit(77)

build, ranks, rounds, seed, threads = sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]
source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
names = {}
for line in open(os.path.join(source, "core", "mpi_ops.def")):
    match = re.match(r"LS_MPI_OP\((\d+), (\w+),", line)
    if match:
        names[int(match[1])] = "MPI_" + match[2]

env = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_"))}
# Another MPI's launcher and programs (tests/e2e/mpis).
programs = os.environ.get("LOCKSTEP_TEST_PROGRAMS", os.path.join(build, "tests"))
root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
mpirun = os.environ.get("LOCKSTEP_TEST_MPIEXEC", " ".join(["mpirun", *root, "--oversubscribe"])).split() + ["-np", str(ranks)]


def job(prefix, counts):
    command = mpirun + prefix + [os.path.join(programs, "counted"), counts, rounds, seed, threads]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)


with tempfile.TemporaryDirectory() as directory:
    plain = job([], directory + "/plain")
    run = directory + "/run"
    traced = job([os.path.join(build, "lockstep"), "run", "-o", run, "--after", "none", "--"], directory + "/traced")
    assert plain.returncode == 0, plain.stderr
    assert traced.returncode == 0, traced.stderr
    assert sorted(plain.stdout.splitlines()) == sorted(traced.stdout.splitlines()), traced.stdout
    files = sorted(glob.glob(run + "/ranks/rank-*.h5"))
    assert len(files) == ranks, files
    for rank, path in enumerate(files):
        expected = {}
        for line in open(f"{directory}/traced-{rank}"):
            name, count = line.split()
            expected[name] = int(count)
        with rank_tables.open_file(path, "r") as file:
            seen = {}
            for op, count in zip(file["mpi_calls/op"][:].tolist(), file["mpi_calls/count"][:].tolist()):
                seen[names[op]] = seen.get(names[op], 0) + count
            assert seen == expected, f"rank {rank}: " + str(
                {k: (expected.get(k), seen.get(k)) for k in set(seen) | set(expected) if seen.get(k) != expected.get(k)})
            losses = file["losses/count"][:].tolist()
            strings = file["string_bytes/value"][:].tobytes()
            loss_names = [strings[file["strings/offset_bytes"][n]:][:file["strings/length_bytes"][n]].decode()
                          for n in file["losses/name"][:].tolist()]
            bad = [n for n in loss_names if n in ("RingFull", "NoRing", "SpoolWrite", "RequestUnknown")]
            assert not bad, (bad, losses)
            # Every operation ended, and every message found its partner.
            assert (file["collectives/end_ns"][:] > -2**63).all()
            assert (file["p2p/end_ns"][:] > -2**63).all()
    merged = subprocess.run([os.path.join(build, "lockstep"), "analyze", run, "--json", directory + "/a.json", "--quiet"],
                            capture_output=True, text=True, env=env, timeout=240)
    assert merged.returncode in (0, 3), merged.stderr
    trust = json.load(open(directory + "/a.json"))["trust"]
    assert trust["unmatched_collectives"] == 0, trust
    assert trust["clock_violations"] == 0, trust
    assert trust["dropped"] == 0, trust
print("ok: every call counted by the program is in the trace")
