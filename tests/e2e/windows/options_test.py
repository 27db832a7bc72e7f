"""The words that say which steps are recorded, without a job: options_test.py BUILD_DIR CASE"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from jobs import BUILD, LOCKSTEP, leave  # noqa: E402


class Schedule(unittest.TestCase):
    def test_equals_torch(self):
        try:
            from torch.profiler import schedule
        except ImportError:
            self.skipTest("no PyTorch")
        warnings.simplefilter("ignore")
        chance = random.Random(7)
        settings = []
        for _ in range(200):
            settings.append((chance.randrange(5), chance.randrange(4), 1 + chance.randrange(5), chance.randrange(4),
                             chance.randrange(12), 80))
        text = "".join("%d %d %d %d %d %d\n" % s for s in settings)
        lines = subprocess.run([BUILD / "tests/e2e_window_phases"], input=text, capture_output=True, text=True,
                               check=True).stdout.splitlines()
        self.assertEqual(len(lines), len(settings))
        for (wait, warmup, active, repeat, skip, steps), line in zip(settings, lines):
            fn = schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
            self.assertEqual(line, "".join(str(fn(i).value) for i in range(steps)), (wait, warmup, active, repeat, skip))


class Wrong(unittest.TestCase):
    def test_values(self):
        with tempfile.TemporaryDirectory() as place:
            self.refused(place)
            self.assertEqual(os.listdir(place), [])

    def refused(self, place):
        for words in (["--steps", "5"], ["--steps", "5:3"], ["--steps", "-1:3"], ["--steps", "0:10/5"],
                      ["--steps", "1:99999999999999999999"], ["--schedule", "wait=1"], ["--schedule", "active=x"],
                      ["--schedule", "active=1,active=2"], ["--range", "nvtx:"], ["--range-count", "3"],
                      ["--range", "a", "--range-count", "0"], ["--delay", "-1"], ["--duration", "x"],
                      ["--duration", "0"], ["--duration", "nan"], ["--on-signal", "KILL"], ["--start", "maybe"],
                      ["--ranks", "3:1"], ["--ranks", "x"], ["--steps", "1:2", "--range", "a"],
                      ["--trigger", "--align", "0"], ["--step-range", "x" * 200], ["--signal-steps", "3"]):
            done = subprocess.run([LOCKSTEP, "run"] + words + ["--", "true"], cwd=place, capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 2, words)
            self.assertEqual(len(done.stderr.splitlines()), 3, done.stderr)
            self.assertTrue(done.stderr.startswith("error: "), done.stderr)


if __name__ == "__main__":
    leave(unittest.main(argv=[sys.argv[0], "-v", sys.argv[2]], exit=False).result)
