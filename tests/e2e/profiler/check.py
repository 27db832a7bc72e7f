"""torch.profiler in a recorded program, with a real Kineto: check.py BUILD_DIR CASE

Kineto and CUPTI's clients' code are real, the GPU and its libcupti are the tests'. Needs a PyTorch that is linked to
libcupti.so.13 (PyPI's for CUDA 13): the Python of LOCKSTEP_TORCH2_PYTHON, else python3.
"""
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import jobs
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
FAKE = jobs.BUILD / "tests/fakes/libcupti.so.13"
CUDART = jobs.BUILD / "tests/libfake_cudart.so"
PYTHON = os.environ.get("LOCKSTEP_TORCH2_PYTHON", "python3")
LINKED = """
import importlib.util, pathlib
found = importlib.util.find_spec("torch")
library = pathlib.Path(found.origin).parent / "lib/libtorch_cpu.so"
print(b"libcupti.so.13" in library.read_bytes())
"""


def linked():
    if shutil.which(PYTHON) is None:
        return False
    asked = subprocess.run([PYTHON, "-c", LINKED], capture_output=True, text=True, env=jobs.ENVIRONMENT)
    return asked.stdout.strip() == "True"


if not jobs.have(jobs.LOCKSTEP, str(FAKE), str(CUDART)):
    print("skipped: not built")
    sys.exit(77)
if not linked():
    print(f"skipped: {PYTHON} has no PyTorch for CUDA 13 (set LOCKSTEP_TORCH2_PYTHON)")
    sys.exit(77)


class Profiler(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-e2e-profiler-"))

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def profile(self, traced, rounds, kernels, queued, pause_ms, env=None):
        """Kernels by name that each round's profile has, all of the fake's counts, and the run's rank file if traced."""
        out = self.dir / ("with" if traced else "without")
        out.mkdir()
        run = out / "run"
        lockstep = [jobs.LOCKSTEP, "run", "-o", run, "--after", "none", "--"] if traced else []
        done = jobs.run([*lockstep, PYTHON, HERE / "job.py", FAKE, out, rounds, kernels, queued, pause_ms], self.dir,
                        {"LD_PRELOAD": f"{FAKE}:{CUDART}", **(env or {})})
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        seen = []
        for i in range(rounds):
            events = json.loads((out / f"{i}.json").read_text())["traceEvents"]
            mine = [event for event in events if event.get("cat") == "kernel"]
            launches = sum(1 for event in events if event.get("cat") == "cuda_runtime" and "Launch" in event["name"])
            seen.append({"kernels": collections.Counter(event["name"] for event in mine),
                         "wrong": sum(1 for event in mine if not 40 < event["dur"] < 60), "launches": launches})
        said = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(said["violations"], 0)
        rank = jobs.RankFile(sorted((run / "ranks").glob("rank-*.h5"))[0]) if traced else None
        return seen, said, rank

    def check(self, rounds, kernels, queued, pause_ms, env=None):
        bare, _, _ = self.profile(False, rounds, kernels, queued, pause_ms, env)
        traced, said, rank = self.profile(True, rounds, kernels, queued, pause_ms, env)
        all_of_it = {"kernels": {"inside": kernels}, "wrong": 0, "launches": kernels}
        self.assertEqual(traced, [all_of_it] * rounds)
        # By itself Kineto registers its clock once more in each session, and CUPTI then misplaces that many kernels more
        # at its begin (pytorch issue 192021), which Kineto leaves out. That is all that may differ.
        for i, one in enumerate(bare):
            self.assertEqual(one["launches"], kernels)
            self.assertEqual(list(one["kernels"]), ["inside"])
            self.assertLessEqual(kernels - i, one["kernels"]["inside"] - one["wrong"], i)
        return said, rank


class Handover(Profiler):
    """The profiler sees what it sees without Lockstep, and what Lockstep did not get is counted."""

    def test_busy(self):
        said, rank = self.check(rounds=3, kernels=1000, queued=30, pause_ms=900)
        recorded = collections.Counter(rank.text(name) for name in rank.column("kernels", "name"))
        losses = rank.losses
        self.assertNotIn("inside", recorded)
        self.assertEqual(recorded["after"], 3 * 30)
        self.assertEqual(losses["GpuCaptureTaken"], 3)
        missing = said["made"] - 3 * 1000 - sum(recorded.values())
        self.assertEqual(losses.get("GpuTimesMissing", 0), missing)

    def test_idle(self):
        _, rank = self.check(rounds=2, kernels=200, queued=0, pause_ms=700)
        self.assertEqual(rank.losses["GpuCaptureTaken"], 2)

    def test_quickly(self):
        self.check(rounds=20, kernels=100, queued=5, pause_ms=20)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], sys.argv[2]], exit=False).result)
