#!/usr/bin/env python3
"""Imports traces of torch.profiler and holds their GPU tables against gpu_tables.py.

  check_gpu_tables.py LOCKSTEP WORK_DIR --seeds FIRST LAST     random traces
  check_gpu_tables.py LOCKSTEP WORK_DIR --traces DIR...        somebody's
  ... --must-differ     with definitions changed on purpose: the comparison must notice
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_tables
import idle_parts
import random_kineto


def check(lockstep, work, name, source):
    run = os.path.join(work, name)
    shutil.rmtree(run, ignore_errors=True)
    for args in (["import", "kineto", source, "-o", run, "--quiet"], ["analyze", run, "--quiet"]):
        done = subprocess.run([lockstep, *args], capture_output=True, text=True)
        if done.returncode not in (0, 3):
            sys.exit(f"lockstep {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    checker = gpu_tables.Checker(lockstep, run)
    for number in sorted(checker.files):
        checker.check_rank(number)
    shutil.rmtree(run, ignore_errors=True)
    return checker


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("work")
    parser.add_argument("--seeds", type=int, nargs=2)
    parser.add_argument("--traces", nargs="*", default=[])
    parser.add_argument("--must-differ", action="store_true")
    args = parser.parse_args()
    missing = [d for d in args.traces if not os.path.isdir(d)]
    if missing:
        print(f"Skipped: no traces in {missing[0]}")
        return 77
    if args.must_differ:
        gpu_tables.PROMPT, idle_parts.SLACK = 1_000, -5_000
    os.makedirs(args.work, exist_ok=True)
    sources = [(os.path.basename(d), d) for d in args.traces]
    for seed in range(args.seeds[0], args.seeds[1] + 1) if args.seeds else ():
        path = os.path.join(args.work, f"random-{seed}.json")
        with open(path, "w") as f:
            f.write(json.dumps(random_kineto.Trace(seed).make()))
        sources.append((f"random-{seed}", path))
    compared = 0
    bad = []
    for name, source in sources:
        checker = check(args.lockstep, args.work, name, source)
        compared += checker.compared
        bad += [f"{name}: {line}" for line in checker.bad]
    for line in bad[:20]:
        print(line)
    print(f"{compared} values of {len(sources)} traces, {len(bad)} differ")
    if args.must_differ:
        print("ok: noticed" if bad else "FAILED: changed definitions went unnoticed")
        return 0 if bad else 1
    return 1 if bad or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
