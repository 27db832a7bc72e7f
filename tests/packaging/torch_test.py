"""The module `lockstep` in programs with PyTorch 2: torch_test.py BUILD_DIR PYTHON"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
PYTHON = sys.argv[2]
JOB = str(pathlib.Path(__file__).resolve().parent / "torch_job.py")
sys.path.insert(0, str(BUILD / "python"))
import lockstep  # noqa: E402
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch_abort  # noqa: E402

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "PYTHONPATH", "RANK", "WORLD_SIZE"))}


def run(words, clear=lambda: None, **variables):
    def start():
        return subprocess.run([str(word) for word in words], env=dict(CLEAN, **variables), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=150)
    done = torch_abort.once_more_if_aborted(start, clear)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Torch(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.out = os.path.join(self.dir.name, "run")

    def test_the_same_graphs(self):
        """The calls are no reason for the compiler to break a graph, recorded or not."""
        plain = run([PYTHON, JOB, "compiled"], PYTHONPATH=str(BUILD / "python"))
        self.assertIn("'unique_graphs': 1", plain)
        recorded = run([BUILD / "lockstep", "run", "--quiet", "--after", "none", "-o", self.out, "--", PYTHON, JOB, "compiled"])
        self.assertEqual(recorded, plain)

    def test_schedule_of_two_ranks(self):
        """The active steps of each rank, complete, and their collectives matched."""
        words = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python",
                 BUILD / "lockstep", "run", "--quiet", "-o", self.out, "--", PYTHON, JOB, "schedule"]
        run(words, clear=lambda: shutil.rmtree(self.out, ignore_errors=True), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        loaded = lockstep.load(self.out)
        active = [5, 6, 7, 8, 9, 15, 16, 17, 18, 19]
        self.assertEqual(loaded["steps"]["index"].tolist(), active)
        self.assertEqual(loaded["steps"].ranks.tolist(), [2] * len(active))
        self.assertEqual(loaded.ranks, [0, 1])
        steps = loaded.events("steps")
        for rank in loaded.ranks:
            self.assertEqual(steps[steps["rank"] == rank]["index"].tolist(), active)
        with open(self.out + "/analysis.json") as file:
            trust = json.load(file)["trust"]
        self.assertEqual((trust["unmatched_collectives"], trust["mismatched_collectives"]), (0, 0))
        operations = loaded.events("collectives")
        in_steps = operations[operations.kind == "all-reduce"].groupby("rank").size().tolist()
        self.assertEqual(in_steps, [len(active)] * 2)


if __name__ == "__main__":
    try:
        run([PYTHON, "-c", "import torch; torch.compile"])
    except (AssertionError, OSError):
        print("SKIPPED: %s has no PyTorch 2" % PYTHON)
        sys.exit(77)
    result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    sys.exit(not result.wasSuccessful())
