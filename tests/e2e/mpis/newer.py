#!/usr/bin/python3
"""Calls of MPI 4.0 and 4.1 (newer.cc): the same job with and without Lockstep, and what its files say.

  newer.py BUILD_DIR CASE      with another MPI's launcher and program: see mpis.py
"""
import csv
import json
import pathlib
import shutil
import sys
import tempfile

try:
    import h5py  # noqa: F401
except ImportError:
    print("SKIPPED: no h5py")
    sys.exit(77)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

PROGRAM = str(jobs.PROGRAMS / "newer")
LATE_NS = 60e6  # newer.cc


# MPICH 5.0.2 itself, without Lockstep: of the communicators that it makes of groups one after the other it may take one
# for another (5 of 150 runs of "mixed", ranks started some 50 ms apart).
MPICH_FAILS = (b"internal_Comm_rank: Invalid communicator", b"internal_Comm_create_from_group: Message truncated")


def unless_mpich_fails(run):
    for _ in range(5):
        done = run()
        if done.returncode == 0 or not any(words in done.stderr for words in MPICH_FAILS):
            break
        print(done.stderr.decode(errors="replace"), flush=True)  # The soak counts these (tests/soak/groups.toml).
    return done


def job(scratch, mode, ranks):
    """Both jobs; the recorded one's run directory and its files by rank."""
    run = scratch / "run"
    plain = unless_mpich_fails(lambda: jobs.run([*jobs.MPIRUN, "-np", ranks, PROGRAM, mode, scratch / "plain"], scratch))
    assert plain.returncode == 0, plain.stderr.decode()

    def recorded():
        shutil.rmtree(run, ignore_errors=True)
        return jobs.run([*jobs.MPIRUN, "-np", ranks, jobs.LOCKSTEP, "run", "--after", "none", "-o", run, "--", PROGRAM, mode,
                         scratch / "book"], scratch)

    done = unless_mpich_fails(recorded)
    assert done.returncode == 0, done.stderr.decode()
    expected = sorted(f"rank {rank}: done" for rank in range(ranks))
    for output in (plain.stdout, done.stdout):
        assert sorted(output.decode().splitlines()) == expected, output
    files = {int(name[5:10]): file for name, file in jobs.Run(run).files().items()}
    assert sorted(files) == list(range(ranks)), files
    for rank, file in files.items():
        book = {}
        for line in (scratch / f"book-{rank}").read_text().splitlines():
            kind, name, count, _ = line.split()
            assert kind == "call"
            book[name] = int(count)
        assert file.calls == book, {n: (book.get(n), file.calls.get(n)) for n in set(book) | set(file.calls)
                                    if book.get(n) != file.calls.get(n)}
        lost = {n: c for n, c in file.losses.items() if n in ("RingFull", "NoRing", "RequestUnknown", "CommUnidentified",
                                                              "RequestNeverCompleted")}
        assert not lost, lost
    return run, files


def analysis(run, *options):
    done = jobs.run([jobs.LOCKSTEP, "analyze", run, "--quiet", "--json", f"{run}/a.json", *options], run)
    assert done.returncode in (0, 3), done.stderr.decode()
    found = json.loads((run / "a.json").read_text())
    assert found["trust"]["unmatched_collectives"] == 0, found["trust"]
    assert found["trust"]["clock_violations"] == 0, found["trust"]
    return found


def all_messages_match(run, found):
    done = jobs.run([jobs.LOCKSTEP, "analyze", run, "--quiet", "--bytes-matrix", f"{run}/matrix.csv"], run)
    assert done.returncode in (0, 3), done.stderr.decode()
    cells = list(csv.DictReader(open(run / "matrix.csv")))
    assert cells, found["p2p"]
    for cell in cells:
        assert cell["matched"] == cell["messages"] and cell["unmatched"] == "0", cell
    return cells


def isendrecv(scratch):
    run, files = job(scratch, "isendrecv", 3)
    all_messages_match(run, analysis(run))
    for file in files.values():
        assert (file.column("p2p", "outcome") == 0).all()


def partitioned(scratch):
    run, files = job(scratch, "partitioned", 2)
    found = analysis(run)
    # Two partitioned ones and a plain one in each of three rounds.
    (cell,) = all_messages_match(run, found)
    assert int(cell["messages"]) == 9 and int(cell["bytes"]) == 3 * 8 * (8000 + 20 + 1), cell
    (pair,) = [p for p in found["p2p"]["pairs"] if p["source"] == 0]
    # The receiver waits for the part that is given away late, and the library may be slow in between.
    assert pair["late_sender_ns"] > 3 * 0.5 * LATE_NS, pair
    seq = sorted(int(s) for s in files[0].column("p2p", "seq"))
    assert seq == [0, 1, 2, *(n * 2**32 + k for n in (1, 2) for k in range(3))], seq


def ids(files):
    return [list(file.column("comms", "global_id")) for file in files.values()]


def sessions(scratch):
    for ranks in (2, 4):
        place = scratch / str(ranks)
        place.mkdir()
        run, files = job(place, "sessions", ranks)
        found = analysis(run)
        all_messages_match(run, found)
        assert found["run"]["ranks"] == ranks, found["run"]
        for file in files.values():
            assert file.rows("comms") == 7, file.rows("comms")
            assert len(set(file.column("comms", "global_id"))) == 7, file.column("comms", "global_id")
        # Members agree about what is made of all, and the halves differ.
        assert set.intersection(*map(set, ids(files))) >= {ids(files)[0][i] for i in (0, 1, 2, 5, 6)}, ids(files)
        assert len({i[4] for i in ids(files)}) == 2, ids(files)


def mixed(scratch):
    run, files = job(scratch, "mixed", 2)
    analysis(run)
    for file in files.values():
        assert file.rows("comms") == 6, file.rows("comms")


def singletons(scratch):
    """Processes that no MPI launcher started share no communicator, whatever its group and text."""
    run = scratch / "run"
    done = jobs.run([jobs.LOCKSTEP, "run", "--after", "none", "-o", run, "--", "sh", "-c",
                     f"{PROGRAM} singletons {scratch}/a & {PROGRAM} singletons {scratch}/b & wait"], scratch)
    assert done.returncode == 0 and done.stdout.decode().count("rank 0: done") == 2, (done.stdout, done.stderr)
    files = [jobs.RankFile(path) for path in sorted((run / "ranks").glob("rank-*.h5"))]
    files = [file for file in files if "MPI_Session_init" in file.calls]
    assert len(files) == 2, files
    a, b = (set(file.column("comms", "global_id")) for file in files)
    assert len(a) == len(b) == 6 and not a & b, (a, b)
    analysis(run)


def buffers(scratch):
    run, files = job(scratch, "buffers", 2)
    all_messages_match(run, analysis(run))
    assert all("MPI_Comm_flush_buffer" in file.calls for file in files.values())


CASES = dict(isendrecv=isendrecv, partitioned=partitioned, sessions=sessions, mixed=mixed, singletons=singletons,
             buffers=buffers)
with tempfile.TemporaryDirectory(prefix="lockstep-newer-") as directory:
    CASES[sys.argv[2]](pathlib.Path(directory))
print("ok: " + sys.argv[2])
