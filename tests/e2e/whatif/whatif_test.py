"""lockstep whatif on real runs of ddp_mpi: with nothing changed the recorded steps come back, and a
known slowness is priced at what it was made of."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs

STEP_MS = 40
COMPUTE_SHARE = 1  # --slow-rank stretches all of the step's compute.


class WhatIf(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)

    def record(self, name, *options):
        report = pathlib.Path(self.place.name) / "report.json"
        for go in range(3):
            run = pathlib.Path(self.place.name) / f"{name}-{go}"
            done = jobs.run([*jobs.MPIRUN, "-np", 2, jobs.LOCKSTEP, "run", "-o", run, "--after", "none", "--",
                             jobs.BUILD / "ddp_mpi", "--steps", 40, "--step-ms", STEP_MS, "--quiet", "--report", report,
                             *options], self.place.name)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.busy = not jobs.steady(json.loads(report.read_text()))
            if not self.busy:
                break
        return run

    def ask(self, run, *options):
        done = jobs.run([jobs.LOCKSTEP, "whatif", run, "-q", "--json", "-", *options], self.place.name)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_slow_rank(self):
        run = self.record("slow", "--slow-rank", "1:1.3", "--layers", 12, "--bucket-cap-mb", "0.1")
        answers = self.ask(run, "--without-rank", 1)
        self.assertEqual(answers["schema"], "lockstep.whatif/1")
        self.assertLess(answers["self_error"], 0.02)
        (answer,) = answers["answers"]
        if self.busy:
            self.skipTest("steps were not equally long in three goes: the machine is busy")
        expected = 0.3 * STEP_MS * 1e6 * COMPUTE_SHARE
        self.assertAlmostEqual(answer["gain_ns"] / expected, 1, delta=0.15)
        self.assertLess(answer["low_ns"], answer["step_ns"] + 1)
        self.assertGreater(answer["high_ns"], answer["step_ns"] - 1)
        self.assertIn("rank", answer["limit"])
        # Without rank 0, which slows nobody, nothing is gained.
        (other,) = self.ask(run, "--without-rank", 0)["answers"]
        self.assertLess(other["gain_ns"], 0.1 * expected)

    def test_usual_questions(self):
        run = self.record("plain", "--layers", 12, "--bucket-cap-mb", "0.1", "--progress", "none")
        answers = self.ask(run)
        questions = [answer["question"] for answer in answers["answers"]]
        self.assertEqual(questions[:3], ["communication free", "bandwidth x 2, latency x 1", "no overlap"])
        self.assertIn("all gradients in one bucket", questions)
        self.assertLess(answers["self_error"], 0.02)
        for answer in answers["answers"]:
            self.assertGreater(answer["step_ns"], 0.5 * STEP_MS * 1e6)
        # What moves in its wait only gains nothing by being posted early.
        self.assertLess(abs(answers["answers"][2]["gain_ns"]), 0.02 * answers["measured_step_ns"])
        text = jobs.run([jobs.LOCKSTEP, "whatif", run, "-q"], self.place.name)
        self.assertIn(b"steps of 2 ranks replayed", text.stdout)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result)
