"""Jobs that stop, over four hosts without a shared directory: rank 0's agent is told what the others recorded so far, and
says who holds the job up.

usage: hang_test.py BUILD_DIR [TEST...]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

from four_hosts import JOB, jobs, of_hosts
from four_hosts import FourHosts as Case

STOPS = [str(jobs.BUILD / "tests/hang_stops")]
RUN = of_hosts.OWN + "/run"


class Hang(Case):
    def begin(self, words, each, after_s=2, options=()):
        self.said, self.pids, self.signalled = [], {}, set()
        self.process = self.hosts.start(
            "head", self.hosts.mpirun_words(each, [jobs.LOCKSTEP, "run", "--hang-after", str(after_s), "-o", RUN, *options, "--", *words]),
            cwd=of_hosts.OWN, env=jobs.ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for stream, take in ((self.process.stdout, self.take_output), (self.process.stderr, self.said.append)):
            reader = threading.Thread(target=lambda stream=stream, take=take: [take(line) for line in stream])
            reader.start()
            self.addCleanup(reader.join)

    def take_output(self, line):
        words = line.split()
        if len(words) == 4 and words[0] == "here":
            self.pids[int(words[1])] = words[2]
        if len(words) == 2 and words[0] == "signalled":
            self.signalled.add(int(words[1]))

    def text(self):
        return "".join(self.said)

    def wait_for(self, done, seconds=90):
        end = time.monotonic() + seconds
        while not done():
            self.assertLess(time.monotonic(), end, self.text())
            self.assertIsNone(self.process.poll(), self.text())
            time.sleep(0.1)

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:  # The launcher waits for a host that is cut off.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def tearDown(self):
        self.end()
        self.hosts.close()  # And all that holds the pipes.

    def answer(self):
        with open(self.hosts.path("node1", RUN + "/hang.json")) as file:
            return json.load(file)

    def ranks_of_node1(self):
        return sorted(path.name for path in pathlib.Path(self.hosts.path("node1", RUN + "/ranks")).glob("rank-*"))

    def test_a_rank_of_another_host(self):
        """One answer, of all ranks; after the end of the job, which the launcher kills, too."""
        self.begin([*STOPS, "sleep"], each=1)
        self.wait_for(lambda: "HANG  " in self.text())
        answer = self.answer()
        self.assertEqual([(row["cause"], row["culprits"]) for row in answer["verdicts"]], [("did_not_enter", [2])], self.text())
        self.assertEqual((answer["ranks"], answer["no_dump"]), (4, []), self.text())
        if (jobs.BUILD / "lockstep-stacks").exists():
            self.assertRegex(self.text(), r"stack of rank 2 \(node3:stacks/rank-00002.txt ")
        time.sleep(3)
        self.assertEqual(self.text().count("nothing has moved"), 1, self.text())
        self.hosts.kill("node3")
        self.end()
        after = json.loads(self.hosts.run("node1", [jobs.LOCKSTEP, "hang", "--json", "-", RUN]).stdout)
        self.assertEqual([(row["cause"], row["culprits"]) for row in after["verdicts"]], [("did_not_enter", [2])])

    def test_a_signal_for_all(self):
        """The programs of all hosts get it, once a hang was said on rank 0's."""
        told = "trap 'echo signalled $OMPI_COMM_WORLD_RANK' USR1; \"$@\" & while :; do wait; done"
        self.begin(["sh", "-c", told, "sh", *STOPS, "sleep"], each=1, options=["--on-hang", f"signal:{int(signal.SIGUSR1)}"])
        self.wait_for(lambda: len(self.signalled) == 4)
        self.assertIn("HANG  ", self.text())

    def test_a_rank_that_asks_for_several_operations_in_turn(self):
        """Rank 3 makes records all the time, and waits for rank 2 as the others do."""
        self.begin([*STOPS, "turns"], each=1)
        self.wait_for(lambda: "HANG  " in self.text())
        self.assertEqual([(row["cause"], row["culprits"]) for row in self.answer()["verdicts"]], [("did_not_enter", [2])], self.text())
        self.assertEqual(self.answer()["no_dump"], [], self.text())

    def test_it_moves_again(self):
        """A rank is stopped, and goes on: nothing is left of what was told."""
        self.begin([*JOB, "--steps", "60"], each=1)
        self.once_training(lambda: None).join()
        on_node3 = lambda name: self.hosts.run("node3", ["sh", "-c", f"for p in /proc/[0-9]*; do [ \"$(cat $p/comm)\" != ddp_mpi ] || kill -{name} ${{p#/proc/}}; done"])
        on_node3("STOP")
        self.wait_for(lambda: "HANG  " in self.text())
        # One row per operation: it may be stopped with several under way.
        self.assertEqual({(row["cause"], *row["culprits"]) for row in self.answer()["verdicts"]}, {("stopped", 2)}, self.text())
        self.assertIn("rank-00002.spool", self.ranks_of_node1())
        on_node3("CONT")
        self.assertEqual(self.process.wait(100), 0, self.text())
        self.assertIn("it moved again", self.text())
        self.assertRegex(self.text(), "rank files of 3 hosts, .* arrived")
        self.assertEqual(self.ranks_of_node1(), [f"rank-0000{rank}.h5" for rank in range(4)])

    def test_a_link_that_is_cut_for_good(self):
        """Nobody on the other hosts is named, and what is known of them is told."""
        self.begin([*JOB, "--steps", "2000"], each=2, after_s=1)
        self.once_training(lambda: self.hosts.link("node3", up=False)).join()
        self.wait_for(lambda: "HANG  " in self.text())
        answer = self.answer()
        for row in answer["verdicts"]:
            self.assertLessEqual(set(row["culprits"]), {4, 5}, self.text())
        self.assertLessEqual(set(answer["no_dump"]), {4, 5}, self.text())
        self.end()
        # What was recorded there is there.
        self.assertTrue([path for path in pathlib.Path(self.hosts.path("node3", RUN + "/ranks")).glob("rank-0000[45].spool")])
        self.analyze(RUN, "node1", of_hosts.OWN, code=3)


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Hang)
    if len(sys.argv) > 2:
        suite = unittest.TestSuite(Hang(name) for name in sys.argv[2:])
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
