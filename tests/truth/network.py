#!/usr/bin/env python3
"""On several hosts: who is late and whose network is slow, and nobody else.

  network.py BUILD
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import network_cases as network
import straggler_cases as cases


def main():
    program = sys.argv[1] + "/straggler_runs" if os.path.isdir(sys.argv[1]) else sys.argv[1]
    chosen = list(network.small(1))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as scratch:
        answers = cases.run_all(program, scratch, [c.text for c in chosen])
    failed = 0
    for case, answer in zip(chosen, answers):
        missing, wrong = network.judge(case, answer)
        failed += bool(missing or wrong)
        for line in missing + wrong:
            print(f"{case.name}: {line}")
    print(f"{len(chosen) - failed} of {len(chosen)} right")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
