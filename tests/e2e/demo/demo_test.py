"""lockstep demo: each recorded run is there, is analysed anew, and has the answer that it was recorded for.

usage: demo_test.py BUILD_DIR [unittest arguments]
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = pathlib.Path(sys.argv.pop(1)).resolve() / "lockstep"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_", "PMI_", "SLURM_"))}
# Name -> its first finding and the ranks or hosts that are in it (examples/demo/make).
ANSWERS = {
    "late-rank": lambda first: (first["id"], first["rank"]) == ("straggler.arrival", 1),
    "small-buckets": lambda first: first["id"].startswith("buckets."),
    "input": lambda first: (first["id"], first["rank"]) == ("straggler.arrival", 1) and "more in input" in first["evidence"],
    "slow-link": lambda first: first["id"] == "link.slow" and "node3" in first["hosts"],
    "gpu": lambda first: first["id"] == "transfer.exposed",
}


class Demo(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="lockstep-demo-")
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def lockstep(self, *words):
        return subprocess.run([LOCKSTEP, *words], cwd=self.place, env=CLEAN, capture_output=True, text=True, timeout=300)

    def names(self):
        return re.findall(r"(?m)^\d+  (\S+)", self.lockstep("demo", "--list").stdout)

    def test_answers(self):
        self.assertEqual(set(self.names()), {*ANSWERS, "hang"})
        for number, name in enumerate(self.names(), 1):
            with self.subTest(name=name):
                done = self.lockstep("demo", str(number))
                self.assertEqual(done.returncode, 4 if name == "hang" else 0, done.stderr)
                run = f"lockstep.out/demo-{name}"
                self.assertIn(f"$ lockstep {'hang' if name == 'hang' else 'analyze'} {run}\n", done.stderr)
                if name == "hang":
                    self.assertRegex(done.stdout, r"(?m)^HANG .* waits for rank 2")
                    continue
                # Made at this call, by this version.
                analysis = json.loads((self.place / run / "analysis.json").read_text())
                self.assertTrue(ANSWERS[name](analysis["findings"][0]), analysis["findings"][0])
                self.assertIn(analysis["verdict"].split(":")[0].split()[0], done.stdout)
                self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)

    def test_is_a_run_like_any_other(self):
        self.assertEqual(self.lockstep("demo").returncode, 0)
        run = "lockstep.out/demo-late-rank"
        for words in (["analyze"], ["info"], ["report", "-o", "page.html"], ["whatif", "--without-rank", "1"], ["export", "-o", "t.pftrace"]):
            done = self.lockstep(words[0], run, *words[1:])
            self.assertEqual(done.returncode, 0, (words, done.stderr))
        # It is no job of this directory's.
        self.assertEqual(self.lockstep("analyze").returncode, 2)
        # Once more, over what is there.
        self.assertEqual(self.lockstep("demo", "late-rank").returncode, 0)

    def test_a_place_that_takes_nothing(self):
        (self.place / "lockstep.out").write_text("a file")
        done = self.lockstep("demo")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^error: .*\n  lockstep\.out/demo-late-rank\n  try: cd ")


if __name__ == "__main__":
    unittest.main()
