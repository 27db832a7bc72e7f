#!/usr/bin/python3
"""Runs `mpi_rest` under mpirun with and without Lockstep: same output and exit
code, and the trace says what the program counted itself.

  check.py BUILD_DIR CASE
"""
import collections
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import h5py
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import mpi_sessions  # noqa: E402
    import rank_tables  # noqa: E402
except ImportError:
    print("SKIPPED: no h5py")
    sys.exit(77)

BUILD, CASE = os.path.abspath(sys.argv[1]), sys.argv[2]
HERE = os.path.dirname(os.path.abspath(__file__))
NO_TIME = -2**63
NAMES = dict((int(n), "MPI_" + name) for n, name in
             re.findall(r"LS_MPI_OP\((\d+), (\w+),", open(os.path.join(HERE, "../../../core/mpi_ops.def")).read()))
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_"))} | mpi_sessions.ENVIRONMENT
# Another MPI's launcher and programs (tests/e2e/mpis).
ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
MPIRUN = os.environ.get("LOCKSTEP_TEST_MPIEXEC", " ".join(["mpirun", *ROOT, "--oversubscribe"])).split()
OTHER_MPI = "LOCKSTEP_TEST_MPIEXEC" in os.environ
MPIFORT = os.environ.get("LOCKSTEP_TEST_MPIFORT", "mpifort")
PROGRAM = os.path.join(os.environ.get("LOCKSTEP_TEST_PROGRAMS", os.path.join(BUILD, "tests")), "mpi_rest")


def mpirun(ranks, words, extra=(), lockstep=None):
    prefix = [os.path.join(BUILD, "lockstep"), "run", "-o", lockstep, "--after", "none", "--"] if lockstep else []
    return subprocess.run(MPIRUN + list(extra) + ["-np", str(ranks)] + prefix + words, capture_output=True, text=True,
                          env=ENV, timeout=100)


def analyze(run, *words):
    return subprocess.run([os.path.join(BUILD, "lockstep"), "analyze", run, "--quiet", *words], capture_output=True,
                          text=True, env=ENV, timeout=100)


def texts(file):
    data = file["string_bytes/value"][:].tobytes()
    return [data[o:o + n].decode() for o, n in zip(file["strings/offset_bytes"][:].tolist(),
                                                   file["strings/length_bytes"][:].tolist())]


def losses(file):
    t = texts(file)
    return {t[n]: int(c) for n, c in zip(file["losses/name"][:], file["losses/count"][:])}


class Rank:
    def __init__(self, path, book=None):
        self.file = rank_tables.open_file(path, "r")
        self.calls = collections.defaultdict(lambda: [0, 0])
        op, count, moved = (self.file["mpi_calls/" + c][:].tolist() for c in ("op", "count", "bytes"))
        for o, n, b in zip(op, count, moved):
            self.calls[NAMES[o]][0] += n
            self.calls[NAMES[o]][1] += b
        self.book, self.targets, self.sent, self.messages = {}, {}, {}, []
        for line in open(book) if book else ():
            kind, *words = line.split()
            if kind == "call":
                self.book[words[0]] = [int(words[1]), int(words[2])]
            elif kind == "target":
                self.targets[int(words[0])] = int(words[1])
            elif kind == "sent":
                self.sent[int(words[0])] = (int(words[1]), int(words[2]))
            else:
                self.messages.append((words[0], *map(int, words[1:])))

    def column(self, name):
        return self.file[name][:].tolist()

    def check_calls(self, moves=r"MPI_(File_|I?[Nn]eighbor|R?([Pp]ut|[Gg]et|[Aa]ccumulate)|Fetch|Compare)"):
        """Counts of all calls, and bytes of those that the program names bytes for."""
        wrong = {n: (self.book.get(n), self.calls.get(n)) for n in set(self.book) | set(self.calls)
                 if self.book.get(n, [0])[0] != self.calls.get(n, [0])[0] or
                 (re.match(moves, n) and self.book[n][1] != self.calls[n][1])}
        assert not wrong, f"(counted by the program, in the trace): {wrong}"
        lost = {n: c for n, c in losses(self.file).items() if n in ("RingFull", "NoRing", "RequestUnknown",
                                                                    "RequestNeverCompleted", "CommUnidentified")}
        assert not lost, lost


def traced(directory, ranks, mode, words=(), extra=(), code=0):
    """The same job twice; the rank files of the second one with the program's own books."""
    plain = mpirun(ranks, [PROGRAM, mode, directory + "/plain", *words], extra)
    run = directory + "/run"
    done = mpirun(ranks, [PROGRAM, mode, directory + "/book", *words], extra, run)
    assert plain.returncode == done.returncode == code, (plain.returncode, done.returncode, plain.stderr, done.stderr)
    assert sorted(plain.stdout.splitlines()) == sorted(done.stdout.splitlines()), (plain.stdout, done.stdout)
    if code != 0:
        return run, []
    return run, [Rank(f"{run}/ranks/rank-{r:05d}.h5", f"{directory}/book-{r}") for r in range(ranks)]


def identity(run):
    oracle = os.path.join(HERE, "../../oracle/identity.py")
    done = subprocess.run([sys.executable, oracle, run], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def of_class(rank, low, high):
    """The time and rows of the calls and the waits of operations low..high."""
    rows = [(b, b + d, c) for b, d, o, c in zip(*(rank.column("mpi_calls/" + n) for n in
                                                  ("begin_ns", "duration_ns", "op", "comm"))) if low <= o < high]
    waits = [(b, e) for b, e, o in zip(*(rank.column("mpi_requests/" + n) for n in ("wait_begin_ns", "end_ns", "op")))
             if low <= o < high]
    return rows, waits


def check_class(run, ranks, column, low, high):
    done = analyze(run, "--json", run + "/a.json")
    assert done.returncode in (0, 3), done.stderr
    analysis = json.load(open(run + "/a.json"))
    for row, rank in zip(analysis["ranks"], ranks):
        rows, waits = of_class(rank, low, high)
        # One thread, blocking calls one after the other: their lengths add up. Test calls of one wait lie apart.
        spent = sum(e - b for b, e, _ in rows) + sum(e - b for b, e in set(waits))
        assert row[column] == spent, (row[column], spent)
        assert row[column] <= row["mpi_other_ns"] <= row["idle_ns"], row
    identity(run)


def files(directory, mode="files", last="MPI_File_iwrite_at_all", extra=()):
    run, ranks = traced(directory, 3, mode, [directory + "/data"], extra)
    for rank in ranks:
        rank.check_calls()
        requests = rank.file["mpi_requests"]
        assert [NAMES[o] for o in requests["op"][:].tolist()] == [
            "MPI_File_iwrite_at", "MPI_File_iread_at", "MPI_File_iread_at", "MPI_File_iwrite", last]
        assert (requests["end_ns"][:] > NO_TIME).all() and (requests["outcome"][:] == 0).all()
        assert requests["bytes"][:].tolist() == [4000, 4000, 2000, 4000, 4000]
        # Files know the communicator they were opened on.
        comms = {NAMES[o]: c for o, c in zip(rank.column("mpi_calls/op"), rank.column("mpi_calls/comm"))}
        assert comms["MPI_File_write_at"] == 0 and comms["MPI_File_write_ordered"] not in (0, 0xFFFFFFFF), comms
    check_class(run, ranks, "mpi_io_ns", 300, 400)


def files_romio(directory):
    # Debian's build has it; others may not.
    if "romio" not in subprocess.run(["ompi_info"], capture_output=True, text=True).stdout:
        print("SKIPPED: Open MPI without ROMIO")
        sys.exit(77)
    files(directory, "files_romio", "MPI_File_iwrite_at", ["--mca", "io", "romio321"])


def windows(directory):
    # osc/rdma of Open MPI 4.1.4 crashes in this program on one host, with and without Lockstep.
    run, ranks = traced(directory, 3, "windows", extra=[] if OTHER_MPI else ["--mca", "osc", "sm,pt2pt"])
    for number, rank in enumerate(ranks):
        # How often a test finds nothing depends on the machine; all are counted.
        rank.check_calls()
        peers = collections.Counter(p for o, p in zip(rank.column("mpi_calls/op"), rank.column("mpi_calls/peer"))
                                    if 430 <= o < 440 or (400 <= o < 430 and p >= 0))
        assert peers == collections.Counter(rank.targets), (peers, rank.targets)
        kinds = [NAMES[o] for o in rank.column("mpi_requests/op")]
        assert kinds == ["MPI_Raccumulate", "MPI_Rput", "MPI_Rget", "MPI_Rget_accumulate"], kinds
        comms = {c for o, c in zip(rank.column("mpi_calls/op"), rank.column("mpi_calls/comm")) if 430 <= o < 440}
        assert 0xFFFFFFFF not in comms and len(comms) == 2, comms
    done = analyze(run, "--json", run + "/a.json")
    assert done.returncode in (0, 3), done.stderr
    assert all(row["mpi_rma_ns"] > 0 for row in json.load(open(run + "/a.json"))["ranks"])
    identity(run)


def neighbours(directory):
    for ranks in (2, 4):
        place = os.path.join(directory, str(ranks))
        os.mkdir(place)
        run, found = traced(place, ranks, "neighbours")
        for rank in found:
            rank.check_calls()
            kinds = rank.column("collectives/kind")
            assert kinds == [11] * 50 + [13], kinds  # At last MPI_Finalize.
        done = analyze(run, "--json", run + "/a.json")
        assert done.returncode in (0, 3), done.stderr
        analysis = json.load(open(run + "/a.json"))
        assert analysis["trust"]["unmatched_collectives"] == 0 and analysis["trust"]["mismatched_collectives"] == 0
        assert sum(row["count"] for row in analysis["collectives"]) == 51, analysis["collectives"]
        # Neighbours do not wait for everyone: never split.
        assert all(row["wait_ns_median"] is None and row["transfer_ns_median"] is None
                   for row in analysis["collectives"] if row["op"] != "MPI_Finalize")
        assert all(row["exposed_unsplit_ns"] > 0 for row in analysis["ranks"])
        identity(run)


def waits_by_own_clock(ranks):
    """By the program's own clock (one host) and the definition: what each pair's sender and receiver waited for."""
    sends, receives = {}, {}
    for number, rank in enumerate(ranks):
        for kind, message, peer, post, begin, end in rank.messages:
            (sends if kind == "S" else receives)[message] = (number, peer, post, begin, end)
    late_sender, late_receiver = collections.Counter(), collections.Counter()
    calls = collections.defaultdict(list)
    for message, (rank, peer, _, begin, end) in receives.items():
        calls[(rank, begin, end)].append((sends[message][2], peer))
    for (rank, begin, end), halves in calls.items():
        came, peer = max(halves)
        late_sender[(peer, rank)] += max(0, min(came, end) - begin)
    for message, (rank, peer, _, begin, end) in sends.items():
        came = receives[message][2] if message in receives else begin
        # Of a Sendrecv the late sender has it all.
        if begin < came < end and (rank, begin, end) not in calls:
            late_receiver[(rank, peer)] += came - begin
    return {"late_sender_ns": late_sender, "late_receiver_ns": late_receiver}


# The delays the program injects, (source, destination): which wait they cause, and how many ms.
INJECTED = {(1, 0): ("late_sender_ns", 4 * (20 + 8)), (2, 0): ("late_sender_ns", 4 * (6 + 18 + 12) + 14),
            (1, 2): ("late_sender_ns", 4 * 9), (0, 1): ("late_receiver_ns", 4 * 15), (2, 1): ("late_receiver_ns", 4 * 11)}
# On a busy machine the one that waits may come late as well, and then nobody waited: such a job asks nothing.
ATTEMPTS = 5


def waits_job(directory):
    """A job in which, by its own clock, at least half of every injected delay was waited for, and which says so."""
    for attempt in range(ATTEMPTS):
        place = f"{directory}/{attempt}"
        os.mkdir(place)
        run, ranks = traced(place, 3, "waits")
        expected = waits_by_own_clock(ranks)
        lacking = {key: expected[what][key] for key, (what, milliseconds) in INJECTED.items()
                   if expected[what][key] < 0.5e6 * milliseconds}
        # Where cores lack, other findings may come first.
        text = analyze(run).stdout
        if not lacking and "waits for" in text:
            return run, ranks, expected
        print(f"attempt {attempt}: the machine was too busy for the injected waits: {lacking}")
    raise AssertionError(f"in {ATTEMPTS} jobs the injected delays were not waited for by the program's own clock, or not "
                         f"said: {text}")


def waits(directory):
    run, ranks, expected = waits_job(directory)
    done = analyze(run, "--json", run + "/a.json", "--bytes-matrix", run + "/matrix.csv")
    assert done.returncode in (0, 3), done.stderr
    cells = {(int(c["source_rank"]), int(c["destination_rank"])): {k: int(v) for k, v in c.items()}
             for c in csv.DictReader(open(run + "/matrix.csv"))}
    sent = {(s, d): counts for s, rank in enumerate(ranks) for d, counts in rank.sent.items()}
    assert {k: (c["messages"], c["bytes"]) for k, c in cells.items()} == sent, (cells, sent)
    assert all(c["unmatched"] == 0 and c["matched"] == c["messages"] for c in cells.values()), cells

    pairs = {(p["source"], p["destination"]): p for p in json.load(open(run + "/a.json"))["p2p"]["pairs"]}
    for what, by_pair in expected.items():
        for key in cells:
            got, want = pairs[key][what], by_pair[key]
            # A preempted process may lose milliseconds between its own reading and the call.
            assert abs(got - want) <= 5e6 + 0.03 * want, (what, key, got, want)
    # Nobody waits for a buffered message's receiver.
    assert pairs[(0, 2)]["late_receiver_ns"] < 3e6, pairs[(0, 2)]
    # Rank 2's 12 ms while rank 1's message lay there.
    assert 0.5e6 * 48 <= pairs[(2, 0)]["wrong_order_ns"] <= pairs[(2, 0)]["late_sender_ns"], pairs[(2, 0)]
    assert pairs[(1, 0)]["wrong_order_ns"] < 3e6, pairs[(1, 0)]
    # Matched probes: the first message is the 5 bytes, whatever the order of receiving.
    by_seq = {s: b for s, b, tag, d in zip(*(ranks[1].column("p2p/" + c) for c in ("seq", "bytes", "tag", "direction")))
              if tag == 900 and d == 1}
    assert by_seq == {0: 5, 1: 7}, by_seq
    identity(run)


def errors(directory):
    run, ranks = traced(directory, 2, "errors")
    outcomes = collections.Counter(
        NAMES[o] for o, out in zip(ranks[1].column("mpi_calls/op"), ranks[1].column("mpi_calls/outcome")) if out == 2)
    assert outcomes["MPI_Send"] == outcomes["MPI_Isend"] == 1 and outcomes["MPI_Recv"] == 2, outcomes
    assert outcomes["MPI_File_open"] == outcomes["MPI_File_delete"] == 1, outcomes
    # Ranks that each were told of their error did not wait for one another, and what was refused was not sent.
    done = analyze(run, "--json", run + "/a.json")
    assert done.returncode in (0, 3), done.stderr
    trust = json.load(open(run + "/a.json"))["trust"]
    assert trust["clock_violations"] == 0 and trust["unmatched_collectives"] == 0, trust


def abort(directory):
    run, _ = traced(directory, 2, "abort", code=7)
    assert analyze(run, "--json", run + "/a.json").returncode == 3
    assert 1 in json.load(open(run + "/a.json"))["run"]["ranks_ended_early"]
    assert Rank(run + "/ranks/rank-00001.h5").calls["MPI_Abort"][0] >= 1


def spawn(directory):
    run, ranks = traced(directory, 2, "spawn")
    # The launcher starts the children, not a traced process: they are as they would be without.
    assert sorted(n for n in os.listdir(run + "/ranks") if n.endswith(".h5")) == ["rank-00000.h5", "rank-00001.h5"]
    for rank in ranks:
        assert rank.calls["MPI_Comm_spawn"][0] == 1 and rank.calls["MPI_Comm_disconnect"][0] == 1
        # The children's communicator, the merged one: nothing names them on both sides, and it is said.
        assert losses(rank.file).get("CommUnidentified") == 2, losses(rank.file)
    done = analyze(run, "--json", run + "/a.json")
    assert done.returncode in (0, 3), done.stderr
    analysis = json.load(open(run + "/a.json"))
    assert analysis["run"]["ranks"] == 2 and analysis["trust"]["unmatched_collectives"] == 0, analysis["trust"]


def connect(directory):
    run, ranks = traced(directory, 2, "connect")
    assert ranks[0].calls["MPI_Comm_accept"][0] == 1 and ranks[1].calls["MPI_Comm_connect"][0] == 1
    done = analyze(run, "--json", run + "/a.json")
    assert done.returncode in (0, 3), done.stderr


def switch(directory):
    run, ranks = traced(directory, 2, "switch")
    for rank in ranks:
        assert rank.calls["MPI_Barrier"][0] == rank.book["MPI_Barrier"][0] == 6, rank.calls
    # Sequence numbers count what was not recorded, so that the rest still matches.
    assert ranks[0].column("collectives/seq") == [0, 1, 2, 3, 4, 12, 13]  # At last MPI_Finalize.
    analysis = analyze(run, "--json", run + "/a.json")
    assert json.load(open(run + "/a.json"))["trust"]["unmatched_collectives"] == 0, analysis.stdout


def fortran(directory):
    if shutil.which(MPIFORT) is None:
        print("SKIPPED: no mpifort")
        sys.exit(77)
    expected = {"MPI_Init": 1, "MPI_Comm_dup": 1, "MPI_Allreduce": 6, "MPI_Irecv": 3, "MPI_Isend": 3, "MPI_Waitall": 3,
                "MPI_Sendrecv": 3, "MPI_Ibcast": 1, "MPI_Barrier": 1, "MPI_Comm_free": 1, "MPI_Finalize": 1}
    for flags in ([], ["-DF08"]):
        program = directory + "/fortran" + "".join(flags)
        built = subprocess.run([MPIFORT, "-cpp", *flags, HERE + "/fortran.f90", "-o", program], capture_output=True,
                               text=True)
        if built.returncode != 0:
            print("SKIPPED: mpifort does not compile\n" + built.stderr)
            sys.exit(77)
        plain, run = mpirun(3, [program]), program + ".run"
        done = mpirun(3, [program], lockstep=run)
        assert plain.returncode == done.returncode == 0, done.stderr
        assert sorted(plain.stdout.splitlines()) == sorted(done.stdout.splitlines()), done.stdout
        for number in range(3):
            rank = Rank(f"{run}/ranks/rank-{number:05d}.h5")
            counts = {n: c[0] for n, c in rank.calls.items() if n != "MPI_Test"}
            assert counts == expected, (flags, counts)
            assert sorted(rank.column("collectives/bytes")) == [0] * 2 + [400] * 3 + [800] * 4  # Barrier and MPI_Finalize.
            assert not {"RequestUnknown", "CommUnidentified"} & set(losses(rank.file)), losses(rank.file)
        found = analyze(run, "--json", run + "/a.json")
        analysis = json.load(open(run + "/a.json"))
        assert found.returncode == 0 and analysis["trust"]["unmatched_collectives"] == 0, found.stdout
        assert analysis["p2p"]["messages"] == 18 and analysis["p2p"]["bytes"] == 3 * 3 * 880, analysis["p2p"]


CASES = dict(files=files, files_romio=files_romio, windows=windows, neighbours=neighbours, waits=waits, errors=errors,
             abort=abort, spawn=spawn, connect=connect, switch=switch, fortran=fortran)
with tempfile.TemporaryDirectory(prefix="lockstep-rest-") as scratch:
    CASES[CASE](scratch)
print("ok: " + CASE)
