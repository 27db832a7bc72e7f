#!/usr/bin/env python3
"""A DDP job over gloo of which one rank stops: what the agents say while it hangs, and `lockstep hang RUN` after its end.

usage: ddp_test.py BUILD_DIR [unittest arguments]
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.environ.get("LOCKSTEP_TORCH2_PYTHON", "/usr/bin/python3")
AFTER_S = 2


class DdpHangs(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-hang-ddp-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.run_dir = self.place / "run"

    def start(self, *words):
        process = subprocess.Popen(
            [jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "--hang-after", str(AFTER_S), "-o", str(self.run_dir), "--",
             PYTHON, *([] if words[0] == "spawn" else ["-m", "torch.distributed.run", "--nproc-per-node", "3"]),
             str(HERE / "ddp_stops.py"), *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=jobs.ENVIRONMENT, cwd=self.place)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.heard = []
        return process

    def said(self, process, until):
        """What its agents said up to a line that begins so, or to its end."""
        clock = threading.Timer(120, process.kill)
        clock.start()
        lines = []
        for line in process.stderr:
            self.heard.append(line)
            if line.startswith("lockstep: "):
                lines.append(line.rstrip("\n").removeprefix("lockstep: "))
                if until and lines[-1].strip().startswith(until):
                    break
        clock.cancel()
        return lines

    def end(self, process):
        """As `timeout` does."""
        process.terminate()
        self.heard.append(process.communicate(timeout=60)[1])

    def check(self, doing, *words):
        """Live, in the run directory and afterwards: what was said at last."""
        process = self.start(*words)
        text = "\n".join(self.said(process, "from what Lockstep recorded"))
        # Names of functions may come a moment after the answer.
        until = time.monotonic() + 60
        while not list(self.run_dir.glob("stacks/*.txt")) and (jobs.BUILD / "lockstep-stacks").exists() and time.monotonic() < until:
            time.sleep(0.2)
        self.end(process)
        self.assertRegex(text, r"(?m)^HANG  all-reduce #\d+ of \d+ kB on group of all ranks \(ranks 0-2\) waits for rank 1", "".join(self.heard))
        self.assertRegex(text, r"(?m)^ +rank 1 is .*" + doing)
        answer = json.loads((self.run_dir / "hang.json").read_text())
        self.assertEqual([(verdict["cause"], verdict["culprits"]) for verdict in answer["verdicts"]], [("did_not_enter", [1])], answer)
        # Its launcher may have ended rank 1 first, and then the others left their calls with an error.
        after = subprocess.run([jobs.LOCKSTEP, "hang", str(self.run_dir)], capture_output=True, text=True, env=jobs.ENVIRONMENT)
        self.assertEqual(after.returncode, 4, after.stdout)
        self.assertRegex(after.stdout, r"(?m)^HANG  all-reduce .* waits for rank 1")
        for named in re.findall(r"\((stacks/\S+\.txt)", text + after.stdout):
            self.assertIn("train", (self.run_dir / named).read_text(), text)
        return after.stdout

    def test_it_sleeps(self):
        self.check(r"in nanosleep\)|in poll\)", "sleep")

    def test_it_opens_a_file(self):
        pipe = self.place / "pipe"
        os.mkfifo(pipe)
        self.check(f"in open of {pipe}\\)", "file", str(pipe))

    def test_one_agent_has_all_ranks(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        text = self.check(r"in nanosleep\)|in poll\)|, in train, ddp_stops\.py", "spawn", str(port))
        if (jobs.BUILD / "lockstep-stacks").exists():
            self.assertIn("stack of rank 1 (stacks/rank-00000.txt has all of its", text)

    def test_it_pauses(self):
        process = self.start("pause")
        self.assertEqual(self.said(process, None), [])
        self.assertEqual(process.wait(60), 0, "".join(self.heard))


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
        print("no PyTorch here")
        sys.exit(77)
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result)
