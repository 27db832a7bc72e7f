"""`lockstep run --live` and `--metrics` end to end: check.py BUILD_DIR CASE"""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import h5py  # As jobs does.
from jobs import BUILD, ENVIRONMENT, LOCKSTEP, MPIRUN, PYTHON, SOURCE, run, wait_until

if not (BUILD / "ddp_mpi").exists() or shutil.which("mpirun") is None:
    print("skipped: ddp_mpi or mpirun is missing")
    sys.exit(77)

UNIT_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3}


def ms(text):
    value, unit = text.split()
    return float(value) * UNIT_MS[unit]


def lines(stderr):
    return [line[len("lockstep: live: "):] for line in stderr.decode().splitlines() if line.startswith("lockstep: live: ")]


TIME = r"[0-9.e+]+ (?:ns|us|ms|s)"
STEPS = re.compile(rf"steps (\d+)-(\d+) \((\d+)\) · step ({TIME}) · exposed wait ({TIME})(?:, transfer ({TIME}))?"
                   rf"(?:, unsplit ({TIME}))?(?: · last: rank (\d+), in ([0-9.]+) % of (\d+) collectives, ({TIME}) late)?")


def metrics(path):
    """name -> (value, labels); every sample belongs to the HELP and TYPE lines above it."""
    found, described, typed = {}, None, None
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith("# HELP "):
            described = line.split()[2]
        elif line.startswith("# TYPE "):
            typed, kind = line.split()[2:]
            assert kind in ("gauge", "counter"), line
        else:
            name, labels, value = re.fullmatch(r"(lockstep_[a-z_]+)(\{[^}]*\})? (\S+)", line).groups()
            assert name == described == typed, line
            found[name] = (float(value), labels or "")
    return found


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-live-")

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def job(self, flags, program, ranks=2, env=None, code=0):
        done = run([*MPIRUN, "-np", ranks, LOCKSTEP, "run", "-o", "out", *flags, "--", *program], self.dir, env)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        left = [p.name for p in pathlib.Path(self.dir, "out/ranks").iterdir() if p.name.startswith(".live")]
        self.assertEqual(left, [])
        return done

    def analysis(self):
        return json.loads(pathlib.Path(self.dir, "out/analysis.json").read_text())

    def shown(self, done):
        """What the lines say, of those with steps."""
        found = [STEPS.match(line) for line in lines(done.stderr)]
        return [match.groups() for match in found if match]

    def last_ranks(self):
        """step -> (the rank that came last, -1 where none can be told; ns by which; error of that) of its collectives"""
        found, arrivals = collections.defaultdict(list), collections.defaultdict(list)
        with h5py.File(self.dir + "/out/timeline.h5") as timeline:
            members, table = timeline["collective_ranks"], timeline["collectives"]
            for collective, arrival in zip(members["collective"][:].tolist(), members["arrival_ns"][:].tolist()):
                arrivals[collective].append(arrival)
            columns = (table[name][:].tolist() for name in ("step", "last_rank", "error_ns"))
            for row, (step, rank, error) in enumerate(zip(*columns)):
                came = sorted(arrivals[row])
                found[step].append((rank, came[-1] - came[-2] if len(came) > 1 else 0, error))
        return found

    def clock_errors(self, done):
        """first step of a line -> its clock error in ns, 0 if all ranks have one clock"""
        found = {}
        for line in lines(done.stderr):
            if match := STEPS.match(line):
                error = re.search(rf"clock ±({TIME})", line)
                found[int(match.group(1))] = ms(error.group(1)) * 1e6 if error else 0
        return found

    def agrees(self, done, slow):
        """The lines' means are those of the trace over the same steps."""
        shown = self.shown(done)
        self.assertGreaterEqual(len(shown), 2, done.stderr.decode())
        steps = {step["index"]: step["ranks"] for step in self.analysis()["steps"]}
        last_ranks = self.last_ranks()
        clocks = self.clock_errors(done)
        named = collections.Counter()
        for first, last, count, step, wait, transfer, unsplit, rank, share, collectives, late in shown[1:]:
            first, last, count = int(first), int(last), int(count)
            clock = clocks[first]
            if count > 1 and (last - first) % (count - 1) != 0:
                continue  # Agents of a busy machine do not tell of every step; which ones are lacking is not said.
            stride = (last - first) // (count - 1) if count > 1 else 1
            ranks = [steps[index] for index in range(first, last + 1, stride)]
            self.assertEqual(len(ranks), count)

            def mean_ms(of):
                return statistics.fmean(of(each) for each in ranks) / 1e6

            def mean(*terms):
                return lambda each: sum(rank[term] for rank in each for term in terms) / len(each)

            whole = mean_ms(mean("exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns"))
            span = mean_ms(lambda each: sum(rank["end_ns"] - rank["begin_ns"] for rank in each) / len(each))
            self.assertAlmostEqual(ms(step), span, delta=0.02 * span)
            self.assertAlmostEqual(ms(wait), mean_ms(mean("exposed_wait_ns")), delta=0.03 * whole + 0.1)
            # What is left out is not known, and no part of the trace's either.
            for told, term in ((transfer, "exposed_transfer_ns"), (unsplit, "exposed_unsplit_ns")):
                self.assertAlmostEqual(ms(told) if told else 0, mean_ms(mean(term)), delta=0.03 * whole + 0.1)
            lasts = [found for index in range(first, last + 1, stride) for found in last_ranks[index]]
            self.assertEqual(int(collectives), len(lasts))
            count = sum(last_rank == int(rank) for last_rank, _, _ in lasts)
            # Rounded to two digits. A tie by the clocks of one may be decided by those of the other.
            near = sum(margin <= 2 * (clock + error) for _, margin, error in lasts)
            self.assertAlmostEqual(float(share), 100 * count / len(lasts), delta=0.5 + 100 * near / len(lasts))
            named[int(rank)] += 1
        self.assertTrue(named, "no line could be compared")
        # In a second of a busy machine it may have been another.
        self.assertEqual(named.most_common(1)[0][0], slow, named)


SLOW = [BUILD / "ddp_mpi", "--quiet", "--steps", "90", "--step-ms", "60", "--work", "timed", "--slow-rank", "1:1.4",
        "--overlap", "off"]


class Figures(Case):
    def test_lines_and_metrics_say_what_the_trace_says(self):
        bare = run([*MPIRUN, "-np", 2, *SLOW], self.dir)
        done = self.job(["--live", "1", "--metrics", "live.prom"], SLOW)
        self.assertEqual(done.stdout, bare.stdout)
        self.agrees(done, slow=1)
        found, shown = metrics(self.dir + "/live.prom"), self.shown(done)[-1]
        self.assertEqual(found["lockstep_ranks"][0], 2)
        self.assertEqual(found["lockstep_ranks_heard"][0], 2)
        self.assertAlmostEqual(found["lockstep_step_seconds"][0] * 1e3, ms(shown[3]), delta=0.01 * ms(shown[3]))
        self.assertAlmostEqual(found["lockstep_exposed_wait_seconds"][0] * 1e3, ms(shown[4]), delta=0.01 * ms(shown[4]))
        self.assertEqual(found["lockstep_last_share"][1], '{rank="1"}')
        self.assertEqual(found["lockstep_dropped_records_total"][0], 0)
        self.assertGreater(found["lockstep_steps_total"][0], 20)

    def test_what_moves_beside_compute_is_split_as_in_the_trace(self):
        """Posted reductions: waiting until the last rank has come, and what moved when after that is not known."""
        self.agrees(self.job(["--live", "1"], [*SLOW[:-1], "on"]), slow=1)

    def test_metrics_alone_say_nothing(self):
        done = self.job(["--metrics", "live.prom"], [*SLOW[:3], "20", *SLOW[4:]])
        self.assertEqual(lines(done.stderr), [])

    def test_metrics_that_cannot_be_written_are_no_harm(self):
        done = self.job(["--live", "1", "--metrics", "none/live.prom"], SLOW)
        self.assertEqual(done.stderr.decode().count("--metrics"), 1)
        self.assertGreaterEqual(len(self.shown(done)), 2)

    def test_the_form_around_mpirun(self):
        words = [LOCKSTEP, "run", "-o", "out", "--live", "1", "--", *MPIRUN, "-np", "2", *SLOW]
        done = run(words, self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.agrees(done, slow=1)


class Clocks(Case):
    def test_other_clocks_are_mapped(self):
        """Rank 1's clock is 1000 s ahead: what is said stays, with its error."""
        done = self.job(["--live", "1"], [*SLOW[:3], "150", *SLOW[4:]],
                        env={"LOCKSTEP_TEST_CLOCK": "1:offset_s=1000,ppm=50"})
        self.agrees(done, slow=1)
        errors = [re.search(rf"clock ±({TIME})", line) for line in lines(done.stderr) if STEPS.match(line)]
        self.assertTrue(all(errors), done.stderr.decode())
        self.assertLess(ms(errors[-1].group(1)), 1)


class NoSteps(Case):
    def test_a_job_without_steps_gets_its_share_in_mpi(self):
        program = [PYTHON, "-c", "from mpi4py import MPI; import time\nfor i in range(35):\n"
                   "  time.sleep(0.05 if MPI.COMM_WORLD.rank else 0.1); MPI.COMM_WORLD.Barrier()"]
        if subprocess.run([PYTHON, "-c", "import mpi4py"], capture_output=True).returncode != 0:
            self.skipTest("no mpi4py")
        done = self.job(["--live", "1"], program)
        told = [re.search(r"no step yet .* in MPI ([0-9.]+) % of the time", line) for line in lines(done.stderr)]
        shares = [float(match.group(1)) for match in told if match]
        self.assertTrue(shares, done.stderr.decode())
        # Half of rank 1's time, next to nothing of rank 0's.
        self.assertTrue(15 < shares[-1] < 35, shares)

    def test_a_window_that_is_over(self):
        done = self.job(["--live", "1", "--steps", "2:6"], SLOW)
        self.assertTrue(any("recording is off" in line or "no step" in line for line in lines(done.stderr)), done.stderr)


class Stuck(Case):
    def test_a_step_that_does_not_end_and_a_rank_that_is_not_heard_of(self):
        words = [*MPIRUN, "-np", "2", LOCKSTEP, "run", "-o", "out", "--after", "none", "--live", "1", "--",
                 str(BUILD / "ddp_mpi"), "--quiet", "--steps", "150", "--step-ms", "60", "--work", "timed"]
        expected = re.compile(r"no step ended · step \d+ runs for .* on rank 0 · 1 of 2 ranks, nothing from 1")

        def said():
            return lines(pathlib.Path(self.dir, "stderr").read_bytes())

        with open(self.dir + "/stderr", "wb") as stderr:
            job = subprocess.Popen(words, cwd=self.dir, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=stderr)
            stopped = []
            try:
                wait_until(lambda: any(STEPS.match(line) for line in said()) or job.poll() is not None)
                claim = pathlib.Path(self.dir, "out/ranks/.agent-00001")
                agents = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self.is_agent(pid, 1)]
                self.assertTrue(claim.exists() and agents, f"rank 1's agent: {said()}")
                for pid in agents:
                    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                    for each in (*map(int, children), pid):
                        os.kill(each, signal.SIGSTOP)
                        stopped.append(each)
                wait_until(lambda: any(expected.search(line) for line in said()))
            finally:
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
                self.assertEqual(job.wait(timeout=120), 0, said())
        self.assertTrue(any(expected.search(line) for line in said()), said())

    def is_agent(self, pid, rank):
        try:
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            directory = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return False
        return (len(command) > 1 and command[1] == b"run" and directory == os.path.realpath(self.dir)
                and b"OMPI_COMM_WORLD_RANK=%d" % rank in environment)


class Torch(Case):
    def test_ddp_over_gloo(self):
        """Works of another thread: rank 1's data come 40 ms late, and rank 0 waits for its gradients."""
        if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest("no PyTorch")
        done = self.job(["--live", "1", "--metrics", "live.prom"],
                        [PYTHON, SOURCE / "tests/e2e/torch/faults_job.py", self.dir + "/meeting", "--fault", "loader", "--rank", "1",
                         "--late-ms", "40", "--work-ms", "6", "--steps", "120", "--layers", "6"])
        self.agrees(done, slow=1)
        found = metrics(self.dir + "/live.prom")
        self.assertGreater(found["lockstep_exposed_wait_seconds"][0], 0.010)
        self.assertEqual(found["lockstep_last_share"][1], '{rank="1"}')

    def test_ddp_over_mpi(self):
        if subprocess.run([PYTHON, "-c", "import torch, mpi4py"], capture_output=True).returncode != 0:
            self.skipTest("no PyTorch or no mpi4py")
        # Long enough for a line of whole seconds where a step takes 2 ms.
        done = self.job(["--live", "1"], [PYTHON, SOURCE / "examples/torch/ddp_train.py", "--steps", "2000", "--width", "128",
                                          "--layers", "4", "--batch", "32"])
        shown = self.shown(done)
        self.assertTrue(shown, done.stderr.decode())
        step_ms = self.analysis()["summary"]["step_ns_mean"] / 1e6
        # A line is of one second's steps: on a busy machine seconds differ.
        self.assertLess(min(abs(ms(line[3]) - step_ms) for line in shown), 0.3 * step_ms)


if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]]))
    if result.testsRun == len(result.skipped):
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
