#!/usr/bin/env python3
"""A thousand ranks: bounded memory, a text that fits a screen, every slow rank named.

  thousand_ranks.py --build BUILD [--ranks 1000]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

SLOW = {3: 1.12, 417: 1.10, 901: 1.10}
MISSING = [17, 18, 19, 300, 555]
SPEC = """ranks {ranks}
nodes {nodes}
steps 6
seed 5
jitter 0.5%
network alpha=30us bandwidth=20GB/s
comm tp block=2
clock node=1 offset=3ms drift=5ppm
{disturbances}
step
  forward 6ms
  allreduce 1MiB comm=tp
  backward 12ms
  allreduce 25MiB
  optimizer 1ms
end
"""
MAX_MEMORY_MB = 400
SCREEN = 50  # Lines.


def run(command, env=None):
    """(output, exit code, peak MB)"""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    output, errors = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return output, errors, child.returncode, usage.ru_maxrss / 1024


def expect(what, condition, shown=""):
    print(("ok      " if condition else "FAILED  ") + what + ("" if condition or not shown else f": {shown}"))
    return 0 if condition else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--ranks", type=int, default=1000)
    args = parser.parse_args()
    lines = [f"slow rank={rank} factor={factor}" for rank, factor in SLOW.items()]
    lines += [f"missing rank={rank}" for rank in MISSING]
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    env.update(NO_COLOR="1", LC_ALL="C.UTF-8", COLUMNS="100")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-thousand-") as scratch:
        text, out, path = (os.path.join(scratch, name) for name in ("run.trace", "run", "analysis.json"))
        with open(text, "w") as f:
            f.write(SPEC.format(ranks=args.ranks, nodes=args.ranks // 8, disturbances="\n".join(lines)))
        _, errors, code, peak = run([os.path.join(args.build, "make_run"), text, out])
        if code != 0:
            raise SystemExit(errors)
        failed += expect(f"make_run: {peak:.0f} MB", peak < MAX_MEMORY_MB)
        shown, errors, code, peak = run([os.path.join(args.build, "lockstep"), "analyze", out, "--json", path], env)
        failed += expect("ranks without a file are exit 3", code == 3, f"exit {code}\n{errors}")
        failed += expect(f"merge and analyze: {peak:.0f} MB", peak < MAX_MEMORY_MB)
        with open(path) as f:
            analysis = json.load(f)
        named = sorted(straggler["rank"] for straggler in analysis["stragglers"])
        failed += expect("the slow ranks are named, nobody else", named == sorted(SLOW), named)
        said = [int(n) for n in re.findall(r"\d+", analysis["verdict"])]
        failed += expect("so says the first sentence", set(SLOW) <= set(said), analysis["verdict"])
        failed += expect("missing ranks are known", analysis["run"]["ranks_missing"] == MISSING)
        count = len(shown.splitlines())
        failed += expect(f"the text fits a screen: {count} lines", count <= SCREEN, shown)
        failed += expect("no line is wider than asked for", max(map(len, shown.splitlines())) <= 110, shown)
        failed += expect("the worst five ranks and a line for the others",
                         f"{len(analysis['ranks']) - 5} others within" in shown, shown)
        failed += expect("groups that do the same are one line", f"{args.ranks // 2 - 4} x 2" in shown, shown)
        terms = ("compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns")
        wrong = [rank["rank"] for rank in analysis["ranks"] if sum(rank[term] for term in terms) != rank["span_ns"]]
        failed += expect("the terms of every rank sum to its span", not wrong, wrong[:5])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
