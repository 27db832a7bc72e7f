#!/usr/bin/env python3
"""A program whose libraries call MPI before the probe is set up is recorded as any other.

usage: early_test.py BUILD_DIR
"""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import jobs
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)


class EarlyCalls(unittest.TestCase):
    def test_they_hide_nothing(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-early-") as place:
            done = jobs.run([*jobs.MPIRUN, "-n", "2", jobs.LOCKSTEP, "run", "--after", "none", "-o", place + "/run", "--",
                             jobs.BUILD / "tests/early_calls"], cwd=place)
            self.assertEqual(done.returncode, 0, done.stderr)
            files = jobs.Run(place + "/run").files()
            self.assertEqual(len(files), 2)
            for file in files.values():
                self.assertEqual(file.calls["MPI_Barrier"], 7)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result)
