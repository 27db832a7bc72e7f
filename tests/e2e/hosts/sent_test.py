"""Jobs whose hosts share no directory: one run at the end, without a further command where the network allows it.

usage: sent_test.py BUILD_DIR Sent
"""
import glob
import os
import pathlib
import re
import sys
import threading
import time
import unittest

from four_hosts import JOB, h5py, jobs, of_hosts
from four_hosts import FourHosts as Case

LATEST = of_hosts.OWN + "/lockstep.out/latest"
ALL = [f"rank-{rank:05}.h5" for rank in range(8)]


def ranges(ranks):
    """As `lockstep run` writes them: 4, 6-7."""
    text = []
    for rank in ranks:
        if text and text[-1][1] == rank - 1:
            text[-1][1] = rank
        else:
            text.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in text)


def of_ranges(text):
    return [rank for span in text.split(", ") for rank in range(int(span.split("-")[0]), int(span.split("-")[-1]) + 1)]


class Sent(Case):
    def latest(self, host="node1"):
        return self.hosts.path(host, LATEST)

    def files(self, host="node1"):
        return sorted(name for name in os.listdir(self.latest(host) + "/ranks") if not name.startswith((".agent-", ".places")))

    def chatty(self, first=4, calls=150_000, options=("--after", "none")):
        return self.job([str(jobs.BUILD / "tests/chatty"), str(first), str(calls)], run="", cwd=of_hosts.OWN, options=options)

    def while_sending(self, act):
        """Does that once a part of a file of rank 4 is on node1."""
        seen = []

        def wait():
            end = time.monotonic() + 60
            while not seen and time.monotonic() < end:
                for path in glob.glob(self.hosts.path("node1", of_hosts.OWN) + "/lockstep.out/2*/ranks/.rank-00004.h5.*.part"):
                    try:
                        if os.path.getsize(path) > 0:
                            seen.append(path)
                    except OSError:
                        pass
                time.sleep(0.01)
            if seen:
                act()
        thread = threading.Thread(target=wait)
        thread.start()
        self.addCleanup(thread.join)
        return seen

    def check_bytes(self, host, rank):
        """The file is what it is on its own host, where it stays."""
        there, = pathlib.Path(self.hosts.path(host, of_hosts.OWN)).glob(f"lockstep.out/2*/ranks/rank-{rank:05}.h5")
        self.assertEqual((pathlib.Path(self.latest()) / f"ranks/rank-{rank:05}.h5").read_bytes(), there.read_bytes(), rank)

    def check_gather_is_named(self, done, missing):
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = re.findall(r"^lockstep: no files from ranks? ([\d, -]+) in .*lockstep gather .*$", done.stderr, re.M)
        self.assertEqual(lines, [missing], done.stderr)

    def test_one_run_without_a_further_command(self):
        words = [*JOB, "--steps", "20"]
        bare = self.job(words)
        done = self.job(words, run="", cwd=of_hosts.OWN)
        self.assertEqual((done.returncode, bare.returncode), (0, 0), done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], bare.stdout.splitlines()[0])
        self.assertRegex(done.stderr, r"(?m)^lockstep: rank files of 3 hosts, [\d.]+ [kM]?B, arrived in lockstep\.out/\S+$")
        self.assertNotIn("lockstep gather", done.stderr)
        self.assertIn("8 ranks on 4 nodes", done.stderr)
        self.assertEqual(self.files(), ALL)
        for rank in range(2, 8):
            self.check_bytes(f"node{rank // 2 + 1}", rank)
        analysis = self.analyze("lockstep.out/latest", "node1", of_hosts.OWN)
        self.check_complete(analysis)
        self.check_clocks(self.latest() + "/timeline.h5", analysis)

    def test_a_shared_directory_needs_nothing_sent(self):
        done = self.job([*JOB, "--steps", "5"], run="")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("arrived", done.stderr)
        self.assertIn("8 ranks on 4 nodes", done.stderr)

    def test_turned_off(self):
        done = self.chatty(calls=0, options=("--after", "none", "--no-send"))
        self.check_gather_is_named(done, "2-7")
        self.assertNotIn("arrived", done.stderr)
        self.assertEqual(self.files(), ALL[:2])

    def test_a_cut_while_files_are_sent(self):
        self.hosts.limit("node3", "1mbit")

        def cut():
            self.hosts.link("node3", up=False)
            time.sleep(3)
            self.hosts.link("node3", up=True)
        seen = self.while_sending(cut)
        done = self.chatty()
        self.assertTrue(seen, "the files were sent before they could be seen: " + done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"rank files of 3 hosts, .* arrived")
        self.assertNotIn("lockstep gather", done.stderr)
        self.assertEqual(self.files(), ALL)
        for rank in range(2, 8):
            self.check_bytes(f"node{rank // 2 + 1}", rank)

    def test_a_host_that_dies_while_files_are_sent(self):
        """mpirun ends the job; nothing is half there, and what is known is kept."""
        self.hosts.limit("node3", "1mbit")
        seen = self.while_sending(lambda: self.hosts.kill("node3"))
        # More than its kernel has taken over by then, which is sent even when the agent is gone.
        done = self.chatty(calls=800_000)
        self.assertTrue(seen, done.stderr)
        self.assertIn("lost communication with a remote daemon", done.stderr)
        names = [name for name in self.files() if not name.startswith(".")]
        self.assertTrue({"rank-00000.h5", "rank-00001.h5"} <= set(names), names)
        self.assertNotIn("rank-00004.h5", names)
        analysis = self.analyze("lockstep.out/latest", "node1", of_hosts.OWN, code=3)
        self.assertIn(4, analysis["run"]["ranks_missing"])

    def test_a_job_that_fails(self):
        """A rank of node3 does. What is sent until the launcher ends the agents is there whole or not at all; the command is said for the rest."""
        words = [str(jobs.BUILD / "tests/chatty"), "99", "0", "20", "5"]
        bare = self.job(words)
        came = said = []
        for attempt in range(4):  # A tenth of a second is little on a machine that others use.
            done = self.job(words, run="", cwd=of_hosts.OWN)
            self.assertEqual((done.returncode, bool(done.stdout)), (bare.returncode, bool(bare.stdout)), done.stderr)
            self.assertRegex(done.stderr, r"(?m)^lockstep: the application failed; what was recorded is in \S+ and on other hosts\. .*lockstep gather ")
            files = self.files()
            self.assertEqual([name for name in files if name.endswith(".part")], [])
            came = [rank for rank in range(2, 8) if f"rank-{rank:05}.spool" in files]
            for rank in came:
                there = sorted(pathlib.Path(self.hosts.path(f"node{rank // 2 + 1}", of_hosts.OWN)).glob(f"lockstep.out/2*/ranks/rank-{rank:05}.spool"))
                spool = (pathlib.Path(self.latest()) / f"ranks/rank-{rank:05}.spool").read_bytes()
                self.assertIn(spool, [path.read_bytes() for path in there], rank)
            said = re.findall(r"(?m)^lockstep: what ranks? ([\d, -]+) recorded, .*, arrived in \S+ in time: lockstep analyze \S+$", done.stderr)
            # What comes later than that is there, too.
            self.assertTrue(len(said) <= 1 and set(rank for span in said for rank in of_ranges(span)) <= set(came), done.stderr)
            if said:
                break
        self.assertTrue(said, "nothing arrived in four jobs")
        analysis = self.analyze("lockstep.out/latest", "node1", of_hosts.OWN, code=3)
        self.assertEqual(analysis["run"]["ranks_missing"], [rank for rank in range(2, 8) if rank not in came])

    def behind_a_rule(self, host, rule):
        """A job in which a host has that rule for the port of rank 0's agent. It is known before any other agent can call it."""
        go = of_hosts.SHARED + "/go"
        words = [jobs.LOCKSTEP, "run", "--after", "none", "--", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exec {jobs.BUILD}/tests/chatty"]
        result = []
        job = threading.Thread(target=lambda: result.append(self.hosts.mpirun(2, words, cwd=of_hosts.OWN, env=jobs.ENVIRONMENT, timeout=100)))
        job.start()
        self.addCleanup(job.join)
        self.addCleanup(pathlib.Path(self.hosts.path("head", go)).touch)
        port, end = None, time.monotonic() + 60
        while port is None and time.monotonic() < end:
            for path in glob.glob(self.hosts.path("node1", of_hosts.OWN) + "/lockstep.out/2*/ranks/.clock-00000"):
                port = re.search(r"10\.77\.0\.1:(\d+)", pathlib.Path(path).read_text())
            time.sleep(0.05)
        self.assertTrue(port)
        made = self.hosts.run(host, ["sh", "-c", "ip rule add pref 1 table local && ip rule del pref 0 && " + rule.format(port=port[1])])
        if made.returncode != 0:
            self.skipTest("this kernel has no rules by port: " + made.stderr)
        pathlib.Path(self.hosts.path("head", go)).touch()
        job.join()
        return result[0]

    def test_a_port_behind_a_firewall(self):
        """No packet reaches the port on which rank 0's agent listens."""
        done = self.behind_a_rule("node1", "ip rule add pref 0 iif eth0 ipproto tcp dport {port} blackhole")
        self.check_gather_is_named(done, "2-7")
        self.assertEqual(self.files(), ALL[:2])
        for rank in (2, 4, 6):
            self.assertRegex(done.stderr, rf"the files of rank {rank} stay in \S+ on node{rank // 2 + 1}: rank 0's agent was not reached at \S+ .*firewall")

    def test_a_host_without_a_way_to_rank_0s_agent(self):
        """Rank 0's agent cannot know of it: it says so, and the host says the rest."""
        done = self.behind_a_rule("node3", "ip rule add pref 0 ipproto tcp dport {port} unreachable")
        self.check_gather_is_named(done, "4-5")
        self.assertRegex(done.stderr, r"(?m)^lockstep: rank files of 2 hosts, .* arrived in ")
        theirs, = re.findall(r"(?m)^lockstep: the files of rank 4 stay in (\S+) on node3: rank 0's agent was not reached at ", done.stderr)
        command, = re.findall(r"(?m)^lockstep: no files from .*\. Where 2 ranks' files are was not told here: add HOST:DIR of their hosts, which may have said it\. "
                              r"To bring the others into one run: lockstep (gather .*) -o \S+   then: ", done.stderr)
        said, = re.findall(r"(?m)^lockstep: rank 0 has no file in \S+ on node3\..*: lockstep gather (\S+) -o RUN ", done.stderr)
        self.assertEqual(said, f"node3:{theirs}")
        self.check_gathered([*command.split(), said])

    def check_gathered(self, words):
        """The command works as it was printed, on a host that reaches all of them."""
        gathered = self.hosts.run("head", [jobs.LOCKSTEP, *words, "-o", "all", "--rsh", os.path.join(of_hosts.HERE, "rsh")], env=jobs.ENVIRONMENT)
        self.assertEqual((gathered.returncode, gathered.stderr), (0, ""), gathered.stdout)
        self.check_complete(self.analyze("all"))

    def rank_0_ends(self, before_s, options):
        there = [jobs.LOCKSTEP, "run", *options, "--", "sh", "-c",
                 f'{jobs.BUILD}/tests/chatty; [ "$OMPI_COMM_WORLD_RANK" = 0 ] || sleep {before_s}']
        return self.hosts.mpirun(2, there, cwd=of_hosts.OWN, env=jobs.ENVIRONMENT, timeout=100)

    def test_rank_0_ends_before_the_others(self):
        done = self.rank_0_ends(2, ("--after", "none"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "rank files of 3 hosts, .* arrived")
        self.assertEqual(self.files(), ALL)
        # By more than is waited for.
        done = self.rank_0_ends(6, ("--after", "none", "--after-wait", "2"))
        self.check_gather_is_named(done, "2-7")
        self.assertRegex(done.stderr, r"(?m)^lockstep: rank 1 still runs 2 s after rank 0 \(--after-wait\), or exited without a status; what is recorded is in \S+\. When the job has ended: lockstep analyze \S+$")
        command, = re.findall(r"; programs there still run 2 s after rank 0 \(--after-wait\): call this once they have ended\. To bring all into one run: lockstep (gather .*) -o \S+   then: ", done.stderr)
        self.check_gathered(command.split())

    def test_rank_0_leaves_mpi_without_a_word(self):
        """The others wait for it until mpirun ends them, which it does once rank 0's agent has ended."""
        words = [str(jobs.BUILD / "tests/chatty"), "99", "0", "5", "0", "0"]
        begin = time.monotonic()
        bare = self.job(words)
        took = time.monotonic() - begin
        done = self.job(words, run="", cwd=of_hosts.OWN)
        self.assertEqual((done.returncode, done.stdout), (bare.returncode, bare.stdout), done.stderr)
        self.assertNotEqual(done.returncode, 0)
        # Not --after-wait, nor a verdict: a second.
        self.assertLess(time.monotonic() - begin - took, took + jobs.on_this_machine(10))
        self.assertRegex(done.stderr, r"still runs? 1 s after rank 0, which was not seen to call MPI_Finalize")
        self.assertNotIn("ranks on", done.stderr)

    def test_a_full_disk_at_rank_0(self):
        """The files of ranks 4 to 7 are more than there is room. Which of them fit, and whether smaller ones do, depends on sizes and on who comes first."""
        made = self.hosts.run("node1", ["sh", "-c", f"mkdir {of_hosts.OWN}/lockstep.out && mount -t tmpfs -o size=1m none {of_hosts.OWN}/lockstep.out"])
        self.assertEqual(made.returncode, 0, made.stderr)
        done = self.chatty(calls=400_000)
        files = self.files()
        self.assertEqual([name for name in files if name.startswith(".")], [], "parts of files that were not taken")
        self.assertIn(ALL[0], files, done.stderr)
        # Its agent made a file of it before the others' came, or has left the spool.
        self.assertTrue(ALL[1] in files or "rank-00001.spool" in files, files)
        there = [rank for rank in range(2, 8) if ALL[rank] in files]
        left = [rank for rank in range(2, 8) if rank not in there]
        self.assertTrue(there and set(left) & {4, 5, 6, 7}, done.stderr)
        for rank in range(2, 8):
            own, = pathlib.Path(self.hosts.path(f"node{rank // 2 + 1}", of_hosts.OWN)).glob(f"lockstep.out/2*/ranks/rank-{rank:05}.h5")
            with h5py.File(own) as file:
                self.assertIn("meta", file)
        for rank in there:
            self.check_bytes(f"node{rank // 2 + 1}", rank)
        self.check_gather_is_named(done, ranges(left))
        # Rank 0's agent says why for one of them and how many more there are, and the first agent of each host for its own.
        others = "" if len(left) == 1 else rf" \(and files of {len(left) - 1} others?\)"
        no_room = "(there is no room on rank 0's host for|it cannot be written on rank 0's host: No space left on device)"
        named = re.findall(rf"(?m)^lockstep: not taken: rank (\d) of node(\d): {no_room}[^(\n]*{others}$", done.stderr)
        self.assertEqual([(int(rank), int(node)) for rank, node, _ in named], [(left[0], left[0] // 2 + 1)], done.stderr)
        told = re.findall(rf"(?m)^lockstep: the files of rank (\d) stay in \S+ on node(\d): {no_room}", done.stderr)
        self.assertEqual(sorted((int(rank), int(node)) for rank, node, _ in told), [(rank, rank // 2 + 1) for rank in left if rank % 2 == 0], done.stderr)
        hosts = {rank // 2 for rank in there}
        self.assertRegex(done.stderr, rf"(?m)^lockstep: rank files of {len(hosts)} hosts?, .* arrived")


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    if len(sys.argv) > 3:
        suite = unittest.TestSuite(globals()[sys.argv[2]](name) for name in sys.argv[3:])
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
