#!/usr/bin/python3
"""A rank that is late inside MPI_Init: what the ranks had agreed to is given up, or waited for, and the job is as without
Lockstep.

usage: given_up_test.py BUILD_DIR OneHost|TwoHosts [TEST..]

OneHost      2 and 4 ranks: results bit by bit, and nobody waits longer than is said
TwoHosts     1 and 2 ranks on each, without a shared directory: the files arrive at rank 0, and clocks are related
"""
import glob
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hosts"))
from four_hosts import JOB, jobs, of_hosts  # noqa: E402

HELD = jobs.BUILD / "tests/libanchors_held.so"


def held(rank, function):
    """Before a program's words: this rank is late for its first call of that function."""
    return ["sh", "-c", f'LD_PRELOAD="$LD_PRELOAD:{HELD}" HELD={rank}:{function} exec "$@"', "sh"]


LATE_S, LIMIT_S = 3, 2
# What a rank is late for, and how many limits pass on one rank after the other at most. In an exchange each partner has
# one, three in all.
WAITS = {"PMIx_Commit": 1, "PMPI_Comm_idup": 2, "PMPI_Iallgather": 3, "PMPI_Ibcast": 3, "PMPI_Iprobe": 3}


class OneHost(unittest.TestCase):
    def job(self, ranks, function=None, late=0, more=()):
        with tempfile.TemporaryDirectory(prefix="lockstep-anchors-") as cwd:
            job = [jobs.BUILD / "tests/sacred_job", 3, 20, *more]
            if function is None:
                return jobs.run([*jobs.MPIRUN, "-np", ranks, *job], cwd), {}
            words = [*jobs.MPIRUN, "-np", ranks, jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", *held(late, function), *job]
            done = jobs.run(words, cwd, timeout=60)
            return done, jobs.Run(os.path.join(cwd, "run")).files()

    def check(self, function, abandoned):
        """`abandoned`: whether the ranks say that an exchange was."""
        for ranks, late in ((2, 1), (4, 0)):
            with self.subTest(ranks=ranks, late=late):
                bare, _ = self.job(ranks)
                done, files = self.job(ranks, function, late)
                self.assertEqual((sorted(done.stdout.splitlines()), done.returncode), (sorted(bare.stdout.splitlines()), 0), done.stderr.decode())
                self.assertGreater(done.seconds, LATE_S, "no rank was late")
                self.assertLess(done.seconds, bare.seconds + LATE_S + WAITS[function] * LIMIT_S + jobs.on_this_machine(3))
                self.assertEqual(len(files), ranks)
                said = [file.losses.get("AnchorAbandoned", 0) for file in files.values()]
                self.assertEqual(any(said), abandoned, said)
                for name, file in files.items():
                    self.assertEqual("abandoned" in file.meta["clock_service"], bool(file.losses.get("AnchorAbandoned")), (name, file.meta["clock_service"]))
                    self.assertIsNone(file.meta.get("clock_trouble"))

    def test_late_for_the_agreement(self):
        self.check("PMIx_Commit", False)

    def test_late_for_the_communicator(self):
        """Whoever gave that up would let its collectives run on among those of the job: it is waited for."""
        self.check("PMPI_Comm_idup", False)

    def test_late_for_the_meeting(self):
        self.check("PMPI_Iallgather", True)

    def test_late_for_the_exchange(self):
        self.check("PMPI_Iprobe", True)

    def test_one_rank_waits_for_nobody(self):
        words = [*JOB, "--steps", "3"]
        with tempfile.TemporaryDirectory(prefix="lockstep-anchors-") as cwd:
            bare = jobs.run([*jobs.MPIRUN, "-np", 1, *words], cwd)
            for function in WAITS:
                done = jobs.run([*jobs.MPIRUN, "-np", 1, jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", *held(0, function), *words], cwd)
                self.assertEqual((done.stdout.splitlines()[0], done.returncode, bare.returncode), (bare.stdout.splitlines()[0], 0, 0), done.stderr)
                self.assertLess(done.seconds, bare.seconds + jobs.on_this_machine(LATE_S))

    def test_threads(self):
        """MPI_Init_thread, and a thread that calls MPI once MPI_Initialized lets it."""
        bare, _ = self.job(2, more=["thread"])
        for function in ("PMPI_Comm_idup", "PMPI_Iallgather"):
            with self.subTest(function):
                done, _ = self.job(2, function, 1, more=["thread"])
                self.assertEqual((sorted(done.stdout.splitlines()), done.returncode), (sorted(bare.stdout.splitlines()), 0), done.stderr.decode())


class TwoHosts(unittest.TestCase):
    WORDS = [*JOB, "--steps", "80"]
    bare = {}  # Ranks per host -> the job without Lockstep.

    def setUp(self):
        if reason := of_hosts.why_not():
            self.skipTest(reason)

    def check(self, function, cases=((1, 1), (2, 0))):
        """`cases`: ranks on each host, and who is late."""
        for each, late in cases:
            with self.subTest(each=each, late=late), of_hosts.Hosts(2, visible=[jobs.BUILD]) as hosts:
                self.one(hosts, function, each, late)

    def one(self, hosts, function, each, late):
        if each not in self.bare:
            self.bare[each] = hosts.mpirun(each, self.WORDS, env=jobs.ENVIRONMENT, timeout=100)
        bare = self.bare[each]
        words = [jobs.LOCKSTEP, "run", "--after", "none", "--", *held(late, function), *self.WORDS]
        done = hosts.mpirun(each, words, cwd=of_hosts.OWN, env=jobs.ENVIRONMENT, timeout=100)
        self.assertEqual((done.returncode, bare.returncode), (0, 0), done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        # All is at rank 0 without a further command.
        self.assertRegex(done.stderr, r"(?m)^lockstep: rank files of 1 host, [\d.]+ [kM]?B, arrived in lockstep\.out/\S+$")
        self.assertNotIn("lockstep gather", done.stderr)
        self.assertNotIn("could not compare its clock", done.stderr)
        files = [jobs.RankFile(path) for path in sorted(glob.glob(hosts.path("node1", of_hosts.OWN) + "/lockstep.out/2*/ranks/*.h5"))]
        self.assertEqual(len(files), 2 * each)
        # Who measured with rank 0's agent, or with rank 0 itself: the clocks are 1,000 s apart.
        rows = [(rank, int(t1), int(t2), int(t3), int(t4)) for rank, file in enumerate(files)
                for t1, t2, t3, t4, purpose in zip(*(file.column("clock_bursts", name) for name in ("send_ns", "peer_receive_ns", "peer_send_ns", "receive_ns", "purpose")))
                if rank >= each and purpose == 0]
        self.assertTrue(rows, [file.meta["clock_service"] for file in files])
        true_ns = (hosts.shift_s["node1"] - hosts.shift_s["node2"]) * 10**9
        for rank, t1, t2, t3, t4 in rows:
            self.assertTrue(t2 - t1 >= true_ns >= t3 - t4, rank)
        told = hosts.run("node1", [jobs.LOCKSTEP, "analyze", "--json", "-", "lockstep.out/latest"], cwd=of_hosts.OWN, env=jobs.ENVIRONMENT)
        self.assertEqual(told.returncode, 0, told.stderr)

    def test_late_for_the_agreement(self):
        self.check("PMIx_Commit", ((1, 1), (2, 3)))

    def test_rank_0_is_late_for_the_agreement(self):
        """The others learn of its agent at their end."""
        self.check("PMIx_Commit", ((1, 0), (2, 0)))

    def test_late_for_the_communicator(self):
        self.check("PMPI_Comm_idup")

    def test_late_for_the_meeting(self):
        self.check("PMPI_Iallgather")

    def test_late_for_the_address(self):
        self.check("PMPI_Ibcast")

    def test_late_for_the_exchange(self):
        self.check("PMPI_Iprobe")


if __name__ == "__main__":
    tests = globals()[sys.argv[2]]
    suite = unittest.TestSuite(map(tests, sys.argv[3:])) if len(sys.argv) > 3 else unittest.defaultTestLoader.loadTestsFromTestCase(tests)
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
