"""Jobs over four hosts of two ranks, with clocks 1,000 s apart.

usage: jobs_test.py BUILD_DIR Class

Clocks       one run directory, and clocks that are where they are said to be
NotShared    each host has directories of its own: what is said leads to the whole run
HostDies     the job ends as without Lockstep, and the analysis says whose ranks are gone
LinkCut      for two seconds: the job's results, and the whole run
SlowNetwork  the host whose network is slow, and no rank
"""
import json
import os
import pathlib
import re
import shutil
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


class Case(unittest.TestCase):
    def setUp(self):
        if reason := of_hosts.why_not():
            self.skipTest(reason)
        self.hosts = self.hold(of_hosts.Hosts(4, visible=[jobs.BUILD]))

    def hold(self, context):
        self.addCleanup(context.__exit__, None, None, None)
        return context.__enter__()

    def job(self, words, run=None, cwd=of_hosts.SHARED, each=EACH):
        """A job on all hosts, recorded if a run directory is named ("": where Lockstep puts it)."""
        lockstep = [jobs.LOCKSTEP, "run", *(["-o", run] if run else []), "--"] if run is not None else []
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

    def check_complete(self, analysis):
        self.assertEqual(analysis["run"]["ranks_missing"], [])
        self.assertEqual([(row["rank"], row["node"]) for row in analysis["ranks"]],
                         [(rank, f"node{rank // EACH + 1}") for rank in range(4 * EACH)])
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertEqual(analysis["trust"]["clock_violations"], 0)

    def check_clocks(self, timeline, analysis):
        """The offsets from rank 0's clock against those that the hosts were made with."""
        with h5py.File(timeline) as file:
            clock = {name: column[:].tolist() for name, column in file["clock"].items()}
        worst = 0
        for rank in range(4 * EACH):
            knots = [i for i, of in enumerate(clock["rank"]) if of == rank]
            self.assertTrue(knots, f"rank {rank} has no clock")
            true_ns = (self.hosts.shift_s["node1"] - self.hosts.shift_s[f"node{rank // EACH + 1}"]) * 10**9
            for i in knots:
                self.assertLessEqual(abs(clock["offset_ns"][i] - true_ns), clock["base_error_ns"][i], f"rank {rank}, knot {i}")
                worst = max(worst, clock["base_error_ns"][i])
        # A bound that no clock of TCP needs says nothing; the largest is what the reader is told at least.
        self.assertTrue(0 < worst < 1_000_000, worst)
        self.assertTrue(0 < analysis["trust"]["clock_error_ns_p50"] <= analysis["trust"]["clock_error_ns_max"] < 1_000_000)


class Clocks(Case):
    def test_one_run_of_all_hosts(self):
        bare = self.job([*JOB, "--steps", "20"])
        done = self.job([*JOB, "--steps", "20"], run="")
        self.assertEqual((done.returncode, bare.returncode), (0, 0), done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        runs = os.listdir(self.hosts.path("head", of_hosts.SHARED + "/lockstep.out"))
        self.assertEqual(len([name for name in runs if name.startswith("2")]), 1, runs)
        self.assertIn("8 ranks on 4 nodes", done.stderr)
        for host in self.hosts.nodes:
            self.assertRegex(done.stderr, rf"(?m)^  \d  {host} ")
        self.assertRegex(done.stderr, r"TRUST +clock \+-[\d.]+ us median, \+-[\d.]+ us at most")
        analysis = self.analyze("lockstep.out/latest")
        self.check_complete(analysis)
        self.check_clocks(self.hosts.path("head", of_hosts.SHARED + "/lockstep.out/latest/timeline.h5"), analysis)


class NotShared(Case):
    def test_what_is_said_leads_to_the_whole_run(self):
        bare = self.job([*JOB, "--steps", "20"])
        done = self.job([*JOB, "--steps", "20"], run="", cwd=of_hosts.OWN)
        self.assertEqual((done.returncode, bare.returncode), (0, 0), done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        home = self.hosts.path("node1", of_hosts.OWN + "/lockstep.out/latest")
        self.assertEqual(sorted(os.listdir(home + "/ranks"))[-2:], ["rank-00000.h5", "rank-00001.h5"])
        self.assertIn("nothing is there of ranks 2-7", done.stderr)
        # The first rank of each other host says in one line where its files are, and how to bring them.
        lines = re.findall(r"^lockstep: rank 0 has no file in .* on (node\d)\. .* run on that node: rsync -a (node\d):'(/[^']+/ranks/)' RUN/ranks/   "
                           r"then: lockstep analyze RUN$", done.stderr, re.M)
        self.assertEqual(sorted(host for host, _, _ in lines), ["node2", "node3", "node4"], done.stderr)
        for host, source, path in lines:
            self.assertEqual(source, host)
            for file in pathlib.Path(self.hosts.path(host, path)).glob("rank-*.h5"):
                shutil.copy(file, home + "/ranks")
        analysis = self.analyze("lockstep.out/latest", host="node1", cwd=of_hosts.OWN)
        self.check_complete(analysis)
        self.check_clocks(home + "/timeline.h5", analysis)


class HostDies(Case):
    WORDS = [*JOB, "--steps", "2000"]

    def test_its_ranks_are_told(self):
        ends = {}
        for run in (None, "dead"):
            if run:
                self.hosts.close()
                self.hosts = self.hold(of_hosts.Hosts(4, visible=[jobs.BUILD]))
            self.once_training(lambda: self.hosts.kill("node3"))
            done = ends[run] = self.job(self.WORDS, run)
            self.assertIn("lost communication with a remote daemon", done.stderr)
        self.assertEqual(ends["dead"].returncode, ends[None].returncode)
        self.assertEqual(ends["dead"].stdout, ends[None].stdout)
        analysis = self.analyze("dead", code=3)
        self.assertEqual(analysis["run"]["ranks"], 8)
        # The launcher may end the others within milliseconds; then nobody ended early.
        self.assertIn(analysis["run"]["ranks_ended_early"], ([], [4, 5]))
        self.assertTrue(analysis["run"]["endings"][0].startswith("ranks 4 and 5 (all of node3) ended without a word"), analysis["run"]["endings"])
        self.assertIn("(all of node3)", " ".join(analysis["remarks"]))
        # What was recorded until then counts.
        self.assertGreater(analysis["run"]["steps"], 3)


class LinkCut(Case):
    WORDS = [*JOB, "--steps", "100"]

    def test_the_run_is_complete(self):
        bare = self.job(self.WORDS)
        self.assertEqual(bare.returncode, 0, bare.stderr)

        def cut():
            self.hosts.link("node3", up=False)
            time.sleep(2)
            self.hosts.link("node3", up=True)
        self.once_training(cut)
        done = self.job(self.WORDS, "cut")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        analysis = self.analyze("cut")
        self.check_complete(analysis)
        self.check_clocks(self.hosts.path("head", of_hosts.SHARED + "/cut/timeline.h5"), analysis)
        # It was cut in a step, and this step is among those that were recorded.
        self.assertGreater(max(step["step_ns"] for step in analysis["steps"]), 2_000_000_000)


class SlowNetwork(Case):
    """A rank on each host, as ranks that lack cores hide a network: steps mostly sleep, and transfers are long."""
    RATE, BYTES_PER_S = "100mbit", 100e6 / 8

    def test_the_host_is_named(self):
        self.hosts.limit("node3", self.RATE)
        words = [str(jobs.BUILD / "ddp_mpi"), "--quiet", "--steps", "20", "--step-ms", "100", "--width", "512", "--layers", "4",
                 "--overlap", "off", "--bucket-cap-mb", "0.25"]
        done = self.job(words, "slow", each=1)
        self.assertEqual(done.returncode, 0, done.stderr)
        analysis = self.analyze("slow")
        self.assertEqual(analysis["stragglers"], [])
        links = [finding for finding in analysis["findings"] if finding["id"] == "link.slow"]
        self.assertEqual(len(links), 1, analysis["verdict"])
        link = links[0]
        # Beside it only a host that waits for its data as long as it does, and then it is said that it is one of them.
        self.assertIn("node3", link["hosts"])
        self.assertLessEqual(len(link["hosts"]), 2)
        if len(link["hosts"]) > 1:
            self.assertTrue(link["one_of_hosts"])
            self.assertIn("a slow network of " + " or ".join(link["hosts"]) + " (which of them, this run cannot tell)", link["headline"])
        least, most = link["network_bytes_per_s"]
        self.assertTrue(least / 1.5 <= self.BYTES_PER_S <= most * 1.5, link["evidence"])


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
