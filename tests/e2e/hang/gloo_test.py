#!/usr/bin/env python3
"""`lockstep hang` on the dumps of a real job over gloo that is made to hang.

usage: gloo_test.py BUILD_DIR
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
JOB = pathlib.Path(__file__).resolve().parent / "gloo_job.py"
PYTHON = os.environ.get("LOCKSTEP_TORCH2_PYTHON", "")
HAS_DUMPS = "import torch.distributed, torch._C._distributed_c10d as c; c._dump_fr_trace, c._dump_fr_trace_json"


class Gloo(unittest.TestCase):
    def hangs_for_rank_2(self, form):
        place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-hang-gloo-"))
        self.addCleanup(shutil.rmtree, place)
        (place / "dumps").mkdir()
        environment = dict(os.environ, TORCH_FR_BUFFER_SIZE="100", OMP_NUM_THREADS="1")
        ranks = []
        for rank in range(3):
            with open(place / f"errors_{rank}", "w") as errors:
                ranks.append(subprocess.Popen([PYTHON, JOB, place, str(rank), "3", form], env=environment, stderr=errors))
        try:
            for rank, process in enumerate(ranks):
                self.assertEqual(process.wait(timeout=200), 0, (place / f"errors_{rank}").read_text())
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        done = subprocess.run([BUILD / "lockstep", "hang", place / "dumps", "--least-wait", "0", "--json", "-"], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 4, done.stderr)
        verdict, = json.loads(done.stdout)["verdicts"]
        self.assertEqual((verdict["cause"], verdict["culprits"], verdict["waiting"]), ("did_not_enter", [2], [0, 1]))
        self.assertEqual((verdict["call"]["kind"], verdict["call"]["sequence"], verdict["call"]["bytes"]), ("all_reduce", 4, 4000))
        return verdict

    def test_pickles(self):
        self.assertRegex(self.hangs_for_rank_2("pickle")["call"]["site"], r"^gloo_job.py:\d+ <module>$")

    def test_json(self):
        self.hangs_for_rank_2("json")


if __name__ == "__main__":
    if not PYTHON or subprocess.run([PYTHON, "-c", HAS_DUMPS], capture_output=True).returncode:
        print("skipped: no PyTorch that records gloo (LOCKSTEP_TORCH2_PYTHON)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
