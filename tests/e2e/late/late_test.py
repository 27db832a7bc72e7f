"""Which function of a late rank is named, in real jobs: late_test.py BUILD_DIR CASE

CASE: one of the classes below; or, by hand, `all`: every cause on MPI and gloo, in Python and C++, and how many were right;
`all FIRST:LAST`: these of them, as in Python.
"""
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from jobs import BUILD, LOCKSTEP, MPIRUN, PYTHON, RankFile, run

HERE = pathlib.Path(__file__).resolve().parent
JOB = HERE / "late_job.py"
SECONDS = 10
PYTHON_CAUSES = ("sleep_a_while", "take_lock", "collect_garbage", "read_file", "collate", "compress_shard", "spin_in_python")
NATIVE_CAUSES = ("Burn", "SleepAWhile", "TakeLock")


def lines_of(path, function):
    """First and last line of a function."""
    lines = pathlib.Path(path).read_text().splitlines()
    pattern = rf"(def |.*void ){function}\("
    first = next(i for i, line in enumerate(lines) if re.match(pattern, line))
    last = next((i for i, line in enumerate(lines) if i > first and line and not line.startswith((" ", "}", "\t"))), len(lines))
    return first + 1, last


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-late-")

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def job(self, words, ranks, flags=("--stacks", "late"), env=None):
        if not shutil.which("mpirun"):
            self.skipTest("skipped: mpirun is missing")
        done = run([*MPIRUN, "-np", ranks, LOCKSTEP, "run", "-o", "out", *flags, "--", *words], self.dir, env)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        left = [p.name for p in pathlib.Path(self.dir, "out/ranks").iterdir() if p.name.startswith(".waits")]
        self.assertEqual(left, [])
        return done

    def mpi(self, cause, rank, ranks, flags=("--stacks", "late")):
        if run([PYTHON, "-c", "import mpi4py"], self.dir).returncode != 0:
            self.skipTest("skipped: mpi4py is missing")
        return self.job([PYTHON, JOB, "mpi", cause, rank, SECONDS], ranks, flags)

    def gloo(self, cause, rank, ranks, flags=("--live", "5")):
        if run([PYTHON, "-c", "import torch.distributed"], self.dir).returncode != 0:
            self.skipTest("skipped: torch is missing")
        # Each rank's number and where they meet, from what mpirun says.
        script = ('export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE MASTER_ADDR=127.0.0.1; '
                  'exec "$@"')
        import socket
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return self.job(["sh", "-c", script, "sh", PYTHON, JOB, "gloo", cause, rank, SECONDS], ranks, flags,
                        {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"})

    def native(self, cause, rank, ranks, flags=("--stacks", "late")):
        return self.job([BUILD / "tests/late_job", cause, rank, SECONDS], ranks, flags)

    def samples(self):
        """rank -> (rows of samples, those with a stack, the longest stop in ns)"""
        found = {}
        for path in sorted(pathlib.Path(self.dir, "out/ranks").glob("rank-*.h5")):
            file = RankFile(path)
            stack, stopped = file.column("samples", "stack"), file.column("samples", "stopped_ns")
            found[int(path.stem[5:])] = (len(stack), int((stack != 0xffffffff).sum()), int(max(stopped, default=0)))
        return found

    def place(self, rank):
        """What is said of the late rank: (function, line), or why nothing is."""
        report = json.loads(pathlib.Path(self.dir, "out/analysis.json").read_text())
        stragglers = {one["rank"]: one for one in report["stragglers"]}
        if rank not in stragglers:
            return f"rank {rank} is not named: {report['verdict']}"
        stack = stragglers[rank]["stack"]
        if stack is None:
            return f"no place is named; samples {self.samples()}; {report['verdict']}"
        return stack["function"], stack["line"]

    def check_place(self, cause, rank, source):
        place = self.place(rank)
        self.assertIsInstance(place, tuple, place)
        function, line = place
        self.assertIn(cause, function)
        first, last = lines_of(source, cause)
        self.assertTrue(first <= line <= last, (place, first, last))

    def check_cost(self, late):
        samples = self.samples()
        self.assertGreater(samples[late][1], 20, samples)
        sampled = [rank for rank, (rows, _, _) in samples.items() if rows > 0]
        self.assertLessEqual(len(sampled), 2, f"one other rank is looked at for comparison: {samples}")


class Python(Case):
    def test_collate(self):
        self.mpi("collate", 1, 2)
        self.check_place("collate", 1, JOB)
        self.check_cost(1)
        text = pathlib.Path(self.dir, "out/analysis.json").read_text()
        self.assertRegex(text, r"\d+ of \d+ samples[^\"]*: collate, late_job.py:\d+")
        table = run([LOCKSTEP, "analyze", "out", "--table", "stacks", "--rank", "1"], self.dir)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn(b"collate", table.stdout)

    def test_off(self):
        self.mpi("sleep_a_while", 0, 2, [])
        self.assertEqual({rank: rows for rank, (rows, _, _) in self.samples().items()}, {0: 0, 1: 0})
        table = run([LOCKSTEP, "analyze", "out", "--table", "stacks"], self.dir)
        self.assertIn(b"no samples of its stack", table.stdout + table.stderr)


class Native(Case):
    def test_lock(self):
        if not (BUILD / "tests/late_job").exists():
            self.skipTest("skipped: late_job is missing")
        self.native("TakeLock", 2, 4)
        self.check_place("TakeLock", 2, HERE / "late_job.cc")
        self.check_cost(2)


class Gloo(Case):
    def test_read(self):
        self.gloo("read_file", 1, 2)
        self.check_place("read_file", 1, JOB)
        self.check_cost(1)


class Healthy(Case):
    def test_none(self):
        self.mpi("none", -1, 2)
        self.assertEqual({rank: rows for rank, (rows, _, _) in self.samples().items()}, {0: 0, 1: 0})


class Everything(Case):
    """By hand: all of them, and how many were right."""

    def test_all(self):
        right, tried = 0, 0
        cases = [(self.mpi, cause, JOB, ranks) for ranks in (2, 4) for cause in PYTHON_CAUSES]
        cases += [(self.gloo, cause, JOB, ranks) for ranks in (2, 4) for cause in PYTHON_CAUSES]
        cases += [(self.native, cause, HERE / "late_job.cc", ranks) for ranks in (2, 4) for cause in NATIVE_CAUSES]
        first, last = (sys.argv[3] if len(sys.argv) > 3 else ":").split(":")
        for number, (start, cause, source, ranks) in list(enumerate(cases))[slice(int(first or 0), int(last or len(cases)))]:
            late = number % ranks
            shutil.rmtree(pathlib.Path(self.dir, "out"), ignore_errors=True)
            start(cause, late, ranks)
            place = self.place(late)
            begin, end = lines_of(source, cause)
            good = isinstance(place, tuple) and cause in place[0] and begin <= place[1] <= end
            right, tried = right + good, tried + 1
            print(f"{'right' if good else 'WRONG'} {start.__name__} {ranks} ranks, {cause}: {place} "
                  f"{self.samples()}", flush=True)
        print(f"{right} of {tried} right")
        self.assertGreaterEqual(right, 0.9 * tried)


if __name__ == "__main__":
    case = {"all": Everything}.get(sys.argv[2]) or globals()[sys.argv[2]]
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    if result.testsRun and len(result.skipped) == result.testsRun and result.wasSuccessful():
        print(result.skipped[0][1])
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
