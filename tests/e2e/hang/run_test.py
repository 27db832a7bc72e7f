#!/usr/bin/env python3
"""`lockstep hang RUN` on real MPI jobs of four ranks in which one thing goes wrong: while they hang, after their launcher
ended them, and after everything was killed. The right cause, the right ranks, and nobody else.

usage: run_test.py BUILD_DIR [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402
from stopping_job import RANKS, Job  # noqa: E402

LEAST_WAIT_S = 1


def ask(run, *words):
    done = subprocess.run([jobs.LOCKSTEP, "hang", str(run), "--least-wait", str(LEAST_WAIT_S), *words],
                          capture_output=True, text=True, timeout=120, env=jobs.ENVIRONMENT)
    return done


class HangRun(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-hang-run-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def start(self, fault, here=range(RANKS)):
        job = Job(fault, self.place / fault)
        self.addCleanup(job.end, signal.SIGKILL)
        job.wait_until(here)
        return job

    def hold(self, seconds=LEAST_WAIT_S + 2):
        time.sleep(seconds)

    def said(self, job, when):
        done = ask(job.run, "--json", "-")
        self.assertEqual(done.returncode, 4, (when, done.stdout, done.stderr))
        answer = json.loads(done.stdout)
        return [(verdict["cause"], verdict["culprits"]) for verdict in answer["verdicts"]]

    def comes_to_say(self, job, expected):
        """Once all ranks have come to where they stay, which takes longer than the least wait on a busy machine."""
        def found():
            done = ask(job.run, "--json", "-")
            return [(verdict["cause"], verdict["culprits"]) for verdict in json.loads(done.stdout)["verdicts"]] if done.returncode == 4 else done.stderr

        jobs.wait_until(lambda: found() == expected, 60)
        self.assertEqual(self.said(job, "alive"), expected, ask(job.run).stdout)  # And keeps to it.

    def expect(self, fault, cause, culprits, here=range(RANKS)):
        job = self.start(fault, here)
        self.hold(LEAST_WAIT_S)
        with self.subTest(fault=fault, when="while it hangs"):
            self.comes_to_say(job, [(cause, culprits)])
        job.end()
        with self.subTest(fault=fault, when="after its launcher ended it"):
            self.assertEqual(self.said(job, "ended"), [(cause, culprits)], ask(job.run).stdout)
        return job

    def test_a_rank_that_computes(self):
        job = self.expect("loop", "did_not_enter", [2])
        text = ask(job.run).stdout
        self.assertRegex(text, r"(?m)^HANG  all-reduce #11 of 8 k?B on group MPI_COMM_WORLD \(ranks 0-3\) waits for rank 2")
        self.assertIn("rank 2 did not enter", text)
        self.assertRegex(text, r"rank 2 is computing \(CPU \d+ %")

    def test_a_rank_that_sleeps(self):
        job = self.expect("sleep", "did_not_enter", [2])
        self.assertRegex(ask(job.run).stdout, r"rank 2 is (mostly )?asleep \(CPU \d+ %")

    def test_other_commands_begin_with_it(self):
        job = self.start("loop")
        self.hold(7)  # Longer than what is taken for work under way where nobody says otherwise.
        # As a host leaves it that loses its power: nothing tells how the ranks ended.
        left = self.place / "left"
        shutil.copytree(job.run, left)
        shown = subprocess.run([jobs.LOCKSTEP, "analyze", str(left), "--no-replay"], capture_output=True, text=True, timeout=120, env=jobs.ENVIRONMENT)
        self.assertRegex(shown.stdout, r"(?m)^  HANG  all-reduce #11 of 8 k?B on group MPI_COMM_WORLD")
        job.end()
        shown = subprocess.run([jobs.LOCKSTEP, "analyze", str(job.run), "--no-replay"], capture_output=True, text=True, timeout=120, env=jobs.ENVIRONMENT)
        self.assertRegex(shown.stdout, r"(?m)^  HANG  all-reduce #11 of 8 k?B on group MPI_COMM_WORLD")
        hang = json.loads((job.run / "analysis.json").read_text())["hang"]
        self.assertIn("waits for rank 2", hang[0])
        page = self.place / "hang.html"
        subprocess.run([jobs.LOCKSTEP, "report", str(job.run), "--no-replay", "-o", str(page)], capture_output=True, timeout=120, env=jobs.ENVIRONMENT)
        self.assertIn("waits for rank 2", page.read_text())

    def test_a_call_less(self):
        # Nobody came to the next call, which would tell a missing one from one in another order.
        self.expect("skipped", "other_operation", [2])

    def test_a_call_more(self):
        self.expect("extra", "other_operation", [2])

    def test_calls_in_another_order(self):
        self.expect("order", "other_operation", [2])

    def test_another_root(self):
        self.expect("root", "mismatch", [2])

    def test_a_rank_that_leaves_early(self):
        self.expect("early", "early_exit", [2])

    def test_a_receive_that_nobody_sends_to(self):
        # Rank 3 waits for rank 2 in the all-reduce, so both are in a circle.
        self.expect("receive", "circular_wait", [2, 3])

    def test_receives_in_a_circle(self):
        self.expect("circle", "circular_wait", [0, 1, 2, 3])

    def test_synchronous_sends_in_a_circle(self):
        self.expect("synchronous", "circular_wait", [0, 1, 2, 3])

    def test_an_operation_that_was_begun_only(self):
        self.expect("begun", "did_not_enter", [2])

    def test_ranks_that_ask_again_and_again(self):
        self.expect("asking", "did_not_enter", [2])

    def test_messages_to_neighbours(self):
        self.expect("neighbours", "did_not_enter", [2])

    def test_communicators_that_are_made(self):
        self.expect("making", "did_not_enter", [2])

    def test_blame_goes_through_communicators(self):
        self.expect("rows", "did_not_enter", [3])

    def test_the_last_rank_to_finalize(self):
        self.expect("last", "did_not_enter", [2])

    def test_a_stopped_rank(self):
        job = self.start("stop")
        self.hold(LEAST_WAIT_S)
        self.comes_to_say(job, [("stopped", [2])])
        job.kill_all()
        self.assertEqual(self.said(job, "killed"), [("stopped", [2])])

    def test_who_probes_forever_is_not_named(self):
        job = self.start("probing")
        self.hold()
        answer = json.loads(ask(job.run, "--json", "-").stdout)
        named = {rank for verdict in answer["verdicts"] for rank in verdict["culprits"]}
        self.assertEqual(named - {2}, set(), answer)

    def test_everything_is_killed_at_once(self):
        job = self.start("loop")
        self.hold()
        job.kill_all()
        self.assertTrue(list((job.run / "ranks").glob("*.spool")), "nobody was to finish a file")
        self.assertEqual(self.said(job, "killed"), [("did_not_enter", [2])])
        # The files that another command makes of what is left say the same.
        subprocess.run([jobs.LOCKSTEP, "recover", str(job.run)], capture_output=True, timeout=120, env=jobs.ENVIRONMENT)
        self.assertEqual(self.said(job, "recovered"), [("did_not_enter", [2])])

    def test_killing_the_culprit_changes_nothing(self):
        job = self.start("loop")
        self.hold(7)  # Longer than a launcher takes to end the others.
        os.kill(job.pids[2][0], signal.SIGKILL)
        job.process.wait(120)
        self.assertEqual(self.said(job, "killed"), [("did_not_enter", [2])])

    def test_a_rank_without_a_file(self):
        job = self.start("loop")
        self.hold()
        job.end()
        for path in (job.run / "ranks").glob("rank-00002.*"):
            path.unlink()
        self.assertEqual(self.said(job, "without"), [("no_dump", [2])])
        self.assertIn("no rank file of rank 2", ask(job.run).stdout)

    def test_a_healthy_run(self):
        job = Job("healthy", self.place / "healthy")
        self.addCleanup(job.end, signal.SIGKILL)
        self.assertEqual(job.process.wait(120), 0)
        done = ask(job.run)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("nothing hangs", done.stdout)

    def test_a_single_rank(self):
        job = Job("loop", self.place / "alone", ranks=1)
        self.addCleanup(job.end, signal.SIGKILL)
        self.assertEqual(job.process.wait(120), 0)
        self.assertEqual(ask(job.run).returncode, 0)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result)
