#!/usr/bin/env python3
"""`lockstep run --hang-after` on real MPI jobs of four ranks in which one thing goes wrong, or nothing does: the agents say
it by themselves, once, with the right cause and rank; healthy jobs that wait long are left alone, and no job is changed.

usage: live_test.py BUILD_DIR [unittest arguments]
"""
import json
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

AFTER_S = 1
PATIENCE_S = 120  # For what comes within seconds on an idle machine.


class HangLive(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-hang-live-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def start(self, fault, *words, after_s=AFTER_S):
        job = Job(fault, self.place / fault, "--hang-after", str(after_s), *words)
        self.addCleanup(job.end)
        return job

    def expect(self, fault, cause, culprits, within_s):
        job = self.start(fault)
        self.assertTrue(job.wait_for("HANG  ", within_s), job.text())
        answer = json.loads((job.run / "hang.json").read_text())
        self.assertEqual([(verdict["cause"], verdict["culprits"]) for verdict in answer["verdicts"]], [(cause, culprits)])
        self.assertIn((job.run / "hang.txt").read_text().splitlines()[0], job.text())
        time.sleep(3 * AFTER_S)
        self.assertEqual(job.text().count("nothing has moved"), 1, job.text())
        job.end()
        self.assertEqual([path.name for path in job.run.glob(".hang-*")], [])
        return job.text()

    def test_a_stopped_rank(self):
        self.expect("stop", "stopped", [2], PATIENCE_S)

    def test_a_rank_that_sleeps(self):
        text = self.expect("sleep", "did_not_enter", [2], PATIENCE_S)
        self.assertRegex(text, r"rank 2 is (mostly )?asleep \(CPU \d+ %(, in pause)?\)")
        run = self.place / "sleep"
        self.assertIn("thread ", (run / "stacks/rank-00002.txt").read_text())
        stacks = json.loads((run / "hang.json").read_text())["verdicts"][0]["stacks"]
        self.assertEqual({stack["rank"] for stack in stacks}, set(range(RANKS)))
        if not (jobs.BUILD / "lockstep-stacks").exists():
            return
        self.assertRegex(text, r"stack of rank 2 .*\n.* pause, .*\n.* Sleep, stops\.cc:\d+")
        self.assertRegex(text, r"3 others: .*MPI_Allreduce <- .* \(stops\.cc:\d+\)")
        self.assertIn("Sleep", json.dumps(stacks))
        # The job was ended meanwhile; what was taken while it hung is still there.
        again = subprocess.run([jobs.LOCKSTEP, "hang", str(run)], stdout=subprocess.PIPE, text=True)
        self.assertRegex(again.stdout, r"Sleep, stops\.cc:\d+")

    def test_without_stacks(self):
        job = self.start("sleep", "--stacks", "off")
        self.assertTrue(job.wait_for("HANG  ", PATIENCE_S), job.text())
        self.assertEqual(json.loads((job.run / "hang.json").read_text())["verdicts"][0]["stacks"], [])
        self.assertNotIn("stack of", job.text())
        self.assertFalse((job.run / "stacks").exists())

    def test_a_rank_that_computes(self):
        self.expect("loop", "did_not_enter", [2], PATIENCE_S)

    def test_calls_in_another_order(self):
        self.expect("order", "other_operation", [2], PATIENCE_S)

    def test_receives_in_a_circle(self):
        self.expect("circle", "circular_wait", [0, 1, 2, 3], PATIENCE_S)

    def test_a_rank_that_leaves_early(self):
        self.expect("early", "early_exit", [2], PATIENCE_S)

    def test_it_moves_again(self):
        job = self.start("stop")
        self.assertTrue(job.wait_for("HANG  ", PATIENCE_S), job.text())
        subprocess.run(["kill", "-CONT", str(job.pids[2][0])], check=True)
        self.assertEqual(job.process.wait(PATIENCE_S), 0)
        self.assertTrue(job.wait_for("it moved again after ", PATIENCE_S), job.text())

    def test_a_job_that_pauses_is_left_alone(self):
        # Rank 2 sleeps for longer than --hang-after while the others wait, as for a checkpoint.
        job = self.start("pause")
        self.assertEqual(job.process.wait(PATIENCE_S), 0)
        job.end()
        self.assertEqual(job.text(), "")
        self.assertFalse((job.run / "hang.txt").exists())

    def test_abort(self):
        job = self.start("stop", "--on-hang", "abort")
        self.assertNotEqual(job.process.wait(PATIENCE_S), 0)
        self.assertIn("HANG  ", job.text())

    def test_a_signal_for_all(self):
        job = self.start("sleep", "--on-hang", f"signal:{int(signal.SIGTERM)}")
        self.assertNotEqual(job.process.wait(PATIENCE_S), 0)
        self.assertIn("HANG  ", job.text())

    def test_off(self):
        job = self.start("stop", after_s=0)
        job.wait_until(range(RANKS))
        self.assertFalse(job.wait_for("HANG", 4 * AFTER_S), job.text())


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result)
