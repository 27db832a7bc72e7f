#!/usr/bin/env python3
"""Each fault that examples/fsdp_mpi injects is what it says, as the trace sees it: how long things take.

usage: injected_test.py BUILD_DIR [unittest arguments]
"""
import sys
import tempfile
import unittest

from fsdp_test import Job, np


class Faults(unittest.TestCase):
    def job(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="lockstep-fsdp-") as directory:
            job = Job(directory, ["--steps", "10", "--step-ms", "12", "--layers", "4", *arguments], 2)
            self.assertEqual(job.done.returncode, 0, job.done.stderr)
            job.rank_files = list(job.run.files().values())
            return job

    def median_range_ms(self, file, name):
        chosen = [duration for text, duration in zip(file.column("ranges", "name"), file.column("ranges", "duration_ns"))
                  if file.text(text) == name]
        return float(np.median(chosen)) / 1e6

    def test_slow_input(self):
        files = self.job("--slow-input", "1:20").rank_files
        self.assertLess(self.median_range_ms(files[0], "input"), 10)
        self.assertGreater(self.median_range_ms(files[1], "input"), 20)

    def test_stall(self):
        job = self.job("--stall", "0:5:80")
        long_steps = [i for i, ns in enumerate(job.report["step_ns"]) if ns > 80e6]
        self.assertTrue({4, 9} <= set(long_steps), job.report["step_ns"])
        self.assertLessEqual(len(long_steps), 4)

    def test_slow_link(self):
        # 4 units: 3 collectives each and step, 1 ms before each.
        job, healthy = self.job("--slow-link", "0-1:1000"), self.job()
        self.assertGreater(job.report["step_ms_median"], healthy.report["step_ms_median"] + 9)

    def test_late_start(self):
        job = self.job("--late-start", "1:1.5", "--step-ms", "4")
        self.assertGreater(job.done.seconds, 1.5)
        self.assertEqual(job.analysis["trust"]["unmatched_collectives"], 0)
        self.assertEqual(job.analysis["run"]["ranks"], 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
