#!/usr/bin/env python3
"""The result depends on what was measured, on nothing else.

  invariance.py --build BUILD files|jobs|shift

files: rank files written in another order, under other names; jobs: -j 1, 2, 4;
shift: a constant added to one rank's clock. Equal: analysis.json byte for byte
and the digests of all datasets (shift: all but what is a time on that clock).
What is not aligned is noticed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SPEC = """ranks 6
nodes 3
steps 60
warmup 2
seed 11
jitter 1%
network alpha=20us bandwidth=4GB/s skew=2us
progress test
comm tp block=2
clock rank=3 offset=$shift drift=20ppm
clock node=2 offset=5s drift=-7ppm
slow rank=4 factor=1.1
step
  input 500us
  forward 3ms
  allreduce 64KiB comm=tp
  backward 8ms buckets=1MiB,4MiB,4MiB
  waitall
  ring 64KiB
  optimizer 1ms
end
"""


class Case:
    def __init__(self, build, scratch):
        self.build, self.scratch = build, scratch

    def make(self, name, shift="0"):
        spec, out = os.path.join(self.scratch, name + ".run"), os.path.join(self.scratch, name)
        with open(spec, "w") as f:
            f.write("let shift %s\n%s" % (shift, SPEC))
        subprocess.run([os.path.join(self.build, "make_run"), spec, out], check=True)
        return out

    def lockstep(self, *words):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
        done = subprocess.run([os.path.join(self.build, "lockstep"), *words], capture_output=True, text=True, env=env)
        if done.returncode not in (0, 3):
            raise SystemExit(f"lockstep {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def analysis(self, run, *flags):
        if os.path.exists(os.path.join(run, "timeline.h5")):
            os.remove(os.path.join(run, "timeline.h5"))
        path = run + ".json"
        self.lockstep("analyze", run, "--json", path, *flags)
        with open(path, "rb") as f:
            return f.read()

    def digest(self, run):
        text = self.lockstep("info", os.path.join(run, "timeline.h5"), "--digest")
        lines = [line.replace(run, "RUN") for line in text.splitlines()]
        if len(lines) < 5:
            raise SystemExit("no digests in: " + text)
        return lines


def expect(what, condition):
    print(("ok      " if condition else "FAILED  ") + what)
    return 0 if condition else 1


def files(case):
    first = case.make("first")
    one, digest = case.analysis(first), case.digest(first)
    failed = 0
    # Written last to first: another order in the directory, other inodes and times.
    second = os.path.join(case.scratch, "second")
    os.makedirs(os.path.join(second, "ranks"))
    shutil.copy(os.path.join(first, "manifest.json"), second)
    for name in sorted(os.listdir(os.path.join(first, "ranks")), reverse=True):
        shutil.copy(os.path.join(first, "ranks", name), os.path.join(second, "ranks", name))
    failed += expect("files written in reverse: analysis.json", case.analysis(second) == one)
    failed += expect("files written in reverse: digests", case.digest(second) == digest)
    return failed


def jobs(case):
    run = case.make("run")
    one, digest = case.analysis(run, "-j", "1"), case.digest(run)
    failed = 0
    for j in ("2", "4"):
        failed += expect(f"-j {j}: analysis.json", case.analysis(run, "-j", j) == one)
        failed += expect(f"-j {j}: digests", case.digest(run) == digest)
    return failed


def shift(case):
    # The bursts' four stamps move together, so offsets differ by exactly the constant.
    plain = json.loads(case.analysis(case.make("plain", "0")))
    failed = 0
    for constant in ("1000s", "-1000s", "7ms"):
        moved = json.loads(case.analysis(case.make("moved" + constant, constant)))
        for analysis in (plain, moved):
            for step in analysis.get("steps", []):
                for cell in step["ranks"]:
                    cell.pop("begin_ns", None), cell.pop("end_ns", None)
            analysis["run"].pop("window", None)
        same = plain == moved
        failed += expect(f"{constant} added to rank 3's clock: equal results", same)
        if not same:
            show(plain, moved)
    # Not aligned, the same clocks contradict the collectives.
    run = os.path.join(case.scratch, "moved7ms")
    noticed = subprocess.run([os.path.join(case.build, "lockstep"), "merge", run, "--clock", "off"], capture_output=True, text=True)
    violations = re.search(r"clock violations (\d+)", noticed.stdout)
    failed += expect("--clock off: violations and exit 3", noticed.returncode == 3 and violations and int(violations[1]) > 0)
    return failed


def show(a, b, where="", left=[10]):
    if left[0] == 0:
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for k in a:
            show(a[k], b.get(k), f"{where}.{k}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            show(x, y, f"{where}[{i}]")
    elif a != b:
        left[0] -= 1
        print(f"        {where}: {a!r} and {b!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("files", "jobs", "shift"))
    parser.add_argument("--build", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-invariance-") as scratch:
        return 1 if {"files": files, "jobs": jobs, "shift": shift}[args.what](Case(args.build, scratch)) else 0


if __name__ == "__main__":
    sys.exit(main())
