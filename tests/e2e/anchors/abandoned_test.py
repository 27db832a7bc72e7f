#!/usr/bin/python3
"""The exchange of a rank that is late for long inside MPI_Init is given up: the job is as without Lockstep, and its files say so.

usage: abandoned_test.py BUILD_DIR
"""
import os
import sys
import tempfile
import unittest

from given_up_test import JOB, held, jobs


class Abandoned(unittest.TestCase):
    def test_late_for_the_meeting(self):
        words = [*JOB, "--steps", "3"]
        with tempfile.TemporaryDirectory(prefix="lockstep-anchors-") as cwd:
            bare = jobs.run([*jobs.MPIRUN, "-np", 2, *words], cwd)
            late = held(1, "PMPI_Iallgather:12000")  # Six times as long as it is waited for.
            done = jobs.run([*jobs.MPIRUN, "-np", 2, jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", *late, *words], cwd)
            self.assertEqual((done.stdout.splitlines()[0], done.returncode), (bare.stdout.splitlines()[0], bare.returncode), done.stderr)
            files = jobs.Run(os.path.join(cwd, "run")).files()
            self.assertEqual(len(files), 2)
            self.assertTrue(any(file.losses.get("AnchorAbandoned") for file in files.values()))
            for file in files.values():
                self.assertEqual("abandoned" in file.meta["clock_service"], "AnchorAbandoned" in file.losses)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result)
