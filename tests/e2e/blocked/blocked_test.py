#!/usr/bin/python3
"""Programs with and without Lockstep: same output and exit code, and the file holds the waits that they know of.

  blocked_test.py BUILD_DIR app|python
"""
import collections
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import jobs
except ImportError:
    print("SKIPPED: no h5py")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
KINDS = {"other": 0, "sleep": 1, "lock": 2, "condition": 3, "semaphore": 4, "python": 5, "join": 6, "child": 7, "file": 8,
         "socket": 9}
UNKNOWN = 0xffffffff


def rows_of(file):
    table = file.tables["blocked"]
    names = list(table)
    for values in zip(*(table[name] for name in names)):
        row = dict(zip(names, map(int, values)))
        for text in ("function", "module", "detail"):
            row[text] = file.text(row[text])
        yield row


def both(place, words, options=()):
    """Runs a program bare and recorded; the rank file of the latter."""
    bare = jobs.run([*words, "told-bare"], place)
    traced = jobs.run([jobs.LOCKSTEP, "run", "-o", "run", "--after", "none", *options, "--", *words, "told"], place)
    assert bare.returncode == traced.returncode, (bare.returncode, traced.returncode, traced.stderr)
    assert bare.stdout == traced.stdout, (bare.stdout, traced.stdout)
    assert bare.stderr == jobs.without_ours(traced.stderr), (bare.stderr, traced.stderr)
    [file] = jobs.Run(place + "/run").files().values()
    return bare, file


def look_at_all(file, rows):
    training = [int(t) for t, is_it in zip(file.column("threads", "thread"), file.column("threads", "training")) if is_it]
    assert {row["thread"] for row in rows} <= set(training), training
    begins = [row["begin_ns"] for row in rows]
    assert begins == sorted(begins)
    for row in rows:
        assert row["duration_ns"] >= 20_000 and row["others_cpu_ns"] >= -1, row
        if row["waker"] != UNKNOWN:
            assert row["waker"] != row["thread"], row
        if row["woken_ns"] != -2**63:
            assert row["begin_ns"] <= row["woken_ns"] <= row["begin_ns"] + row["duration_ns"], row


def app(place):
    program = str(jobs.BUILD / "tests/blocked_app")
    bare, file = both(place, [program])
    assert bare.returncode == 0, bare
    rows = list(rows_of(file))
    look_at_all(file, rows)
    assert not file.losses, file.losses
    found = collections.defaultdict(list)
    for row in rows:
        found[row["function"], row["object"]].append(row)
    path = None
    for line in open(place + "/told"):
        function, rest = line.split(None, 1)
        if function == "path":
            path = rest.strip()
            continue
        object_, count, kind, least_ns, timed_out = rest.split()
        if int(count) < 0:
            continue
        these = found[function, int(object_)]
        assert len(these) == int(count), (line, these)
        for row in these:
            assert row["kind"] == KINDS[kind], (line, row)
            assert row["duration_ns"] >= int(least_ns), (line, row)
            assert row["timed_out"] == int(timed_out), (line, row)
            # std::thread::join and std::condition_variable::wait are in libstdc++.
            assert row["module"] == program or "libstdc++" in row["module"], (line, row)
            if kind in ("condition", "semaphore") and not row["timed_out"]:
                assert row["waker"] != UNKNOWN and row["woken_ns"] - row["begin_ns"] >= int(least_ns) // 2, (line, row)
    flocks = [row for row in rows if row["function"] == "flock"]
    assert [row["detail"] for row in flocks] == [path], flocks
    assert all(row["detail"].startswith("pipe:") for row in rows if row["function"] == "read" and row["duration_ns"] > 10**7)

    # Off: nothing of it.
    done = jobs.run([jobs.LOCKSTEP, "run", "-o", "off", "--after", "none", "--blocked", "off", "--", program, "told-off"], place)
    assert (done.returncode, done.stdout) == (0, bare.stdout), done
    [off] = jobs.Run(place + "/off").files().values()
    assert off.rows("blocked") == 0 and file.rows("blocked") > 0, off.tables["blocked"]


def python(place):
    program = HERE / "waits.py"
    bare, file = both(place, [jobs.PYTHON, program])
    assert bare.returncode == 0, bare
    rows = list(rows_of(file))
    look_at_all(file, rows)
    stacks = file.tables["stacks"]

    def stack_of(row):
        frames, at = [], row["caller"]
        while at != UNKNOWN:
            frames.append((file.text(stacks["function"][at]), pathlib.Path(file.text(stacks["file"][at])).name, int(stacks["line"][at])))
            at = int(stacks["parent"][at])
        return frames

    lines = {word: number for number, text in enumerate(program.read_text().splitlines(), 1)
             for word in [text.rpartition("# ")[2]] if "# " in text}
    for mark, kind, least_ns in (("SLEEP", "sleep", 20e6), ("LOCK", "semaphore", 10e6), ("QUEUE", "semaphore", 10e6),
                                 ("JOIN", "semaphore", 10e6), ("PIPE", "socket", 10e6)):
        here = [row for row in rows if ("main", "waits.py", lines[mark]) in stack_of(row)]
        assert any(row["kind"] == KINDS[kind] and row["duration_ns"] >= least_ns for row in here), (mark, here)
    # Another thread computes in Python: each turn is one wait, however many times 5 ms it lasts. Python's lock is two
    # mutexes and two conditions (Python 3.11, Include/internal/pycore_gil.h); a busy machine shows waits for all four.
    turns = [row for row in rows if row["kind"] == KINDS["python"]]
    assert turns and len({row["object"] for row in turns}) <= 4, turns
    for before, after in zip(turns, turns[1:]):
        if before["timed_out"] and before["object"] == after["object"]:
            assert after["begin_ns"] - before["begin_ns"] - before["duration_ns"] > 100_000, (before, after)


with tempfile.TemporaryDirectory() as place:
    {"app": app, "python": python}[sys.argv[2]](place)
print("ok")
