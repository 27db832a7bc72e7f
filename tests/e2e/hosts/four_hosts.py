"""What the tests of jobs over four hosts of two ranks share. Import after sys.argv[1] is the build directory."""
import json
import pathlib
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "hosts"))
try:
    import h5py
    import jobs
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)
import hosts as of_hosts

EACH = 2
JOB = [str(jobs.BUILD / "ddp_mpi"), "--step-ms", "20", "--width", "256", "--layers", "4"]


class FourHosts(unittest.TestCase):
    def setUp(self):
        if reason := of_hosts.why_not():
            self.skipTest(reason)
        self.hosts = self.hold(of_hosts.Hosts(4, visible=[jobs.BUILD]))

    def hold(self, context):
        self.addCleanup(context.__exit__, None, None, None)
        return context.__enter__()

    def job(self, words, run=None, cwd=of_hosts.SHARED, each=EACH, options=()):
        """A job on all hosts, recorded if a run directory is named ("": where Lockstep puts it)."""
        lockstep = [jobs.LOCKSTEP, "run", *options, *(["-o", run] if run else []), "--"] if run is not None else []
        return self.hosts.mpirun(each, [*lockstep, *words], cwd=cwd, env=jobs.ENVIRONMENT, timeout=100)

    def once_training(self, act):
        """Does that in the middle of the job that is started next: each step sends some 200 kB from each host."""
        before = self.hosts.sent_bytes("node3")

        def wait():
            end = time.monotonic() + 60
            while self.hosts.sent_bytes("node3") - before < 3_000_000 and time.monotonic() < end:
                time.sleep(0.02)
            act()
        thread = threading.Thread(target=wait)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def analyze(self, run, host="head", cwd=of_hosts.SHARED, code=0):
        done = self.hosts.run(host, [jobs.LOCKSTEP, "analyze", "--json", "-", run], cwd=cwd, env=jobs.ENVIRONMENT)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def check_complete(self, analysis, each=EACH):
        self.assertEqual(analysis["run"]["ranks_missing"], [])
        self.assertEqual([(row["rank"], row["node"]) for row in analysis["ranks"]],
                         [(rank, f"node{rank // each + 1}") for rank in range(4 * each)])
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertEqual(analysis["trust"]["clock_violations"], 0)

    def check_clocks(self, timeline, analysis, each=EACH, most_ns=1_000_000):
        """The offsets from rank 0's clock against those that the hosts were made with, and no bound longer than `most_ns`."""
        with h5py.File(timeline) as file:
            clock = {name: column[:].tolist() for name, column in file["clock"].items()}
        worst = 0
        for rank in range(4 * each):
            knots = [i for i, of in enumerate(clock["rank"]) if of == rank]
            self.assertTrue(knots, f"rank {rank} has no clock")
            true_ns = (self.hosts.shift_s["node1"] - self.hosts.shift_s[f"node{rank // each + 1}"]) * 10**9
            for i in knots:
                self.assertLessEqual(abs(clock["offset_ns"][i] - true_ns), clock["base_error_ns"][i], f"rank {rank}, knot {i}")
                worst = max(worst, clock["base_error_ns"][i])
        # A bound that no clock of TCP needs says nothing; the largest is what the reader is told at least.
        self.assertTrue(0 < worst < most_ns, worst)
        self.assertTrue(0 < analysis["trust"]["clock_error_ns_p50"] <= analysis["trust"]["clock_error_ns_max"] < most_ns)
