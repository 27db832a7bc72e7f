#!/usr/bin/env python3
"""One golden case: run.trace -> rank files -> `lockstep analyze`, compared with
expect.txt (the text), expect.json (a part of analysis.json) and the exit code.

  golden.py --build BUILD CASE_DIR... [--update]

expect.json is a subset: every key in it must have that value in analysis.json;
keys it does not name are free. --update rewrites both; the git diff is the review.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile

# What update stores: facts that would be wrong if they changed silently.
KEPT = {
    "run": ("ranks", "ranks_expected", "ranks_missing", "ranks_ended_early", "nodes", "steps"),
    "trust": ("dropped", "unmatched_collectives", "clock_violations"),
    "summary": None,
    "collectives": ("op", "bytes", "count", "transfer_ns_median", "wait_ns_median", "censored"),
    "arrivals": ("rank", "last", "ties", "charge_ns"),
    "ranks": ("rank", "span_ns", "compute_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns",
              "exposed_copy_ns", "idle_ns"),
    "stragglers": ("rank", "kind", "cause"),
    "findings": ("id", "headline", "saves_ns_per_step"),
}
# Results of statistics may move in their last digits with the maths library; times of the identity may not.


def run_case(build, case, out):
    make = subprocess.run([os.path.join(build, "make_run"), os.path.join(case, "run.trace"), out],
                          capture_output=True, text=True)
    if make.returncode != 0:
        raise SystemExit(make.stderr)
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    env.update(NO_COLOR="1", LC_ALL="C.UTF-8", COLUMNS="100")
    path = os.path.join(out, "expected-analysis.json")
    done = subprocess.run([os.path.join(build, "lockstep"), "analyze", out, "--json", path],
                          capture_output=True, text=True, env=env)
    if not os.path.exists(path):
        raise SystemExit(f"lockstep analyze wrote no JSON (exit {done.returncode})\n{done.stderr}")
    with open(path) as f:
        return done.stdout, json.load(f), done.returncode


def strip(text, out):
    """Without what may differ between places and versions: paths, the version, file sizes."""
    text = text.replace(out, "RUN")
    text = re.sub(r"(?m)[ \t]*lockstep \d+\.\d+\.\d+\S*", "", text)
    text = re.sub(r"(?m)^(?=.*timeline\.h5).*$", lambda line: re.sub(r"\d+(\.\d+)? \wB", "SIZE", line[0]), text)
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n") + "\n"


def subset(analysis):
    kept = {}
    for key, fields in KEPT.items():
        value = analysis.get(key)
        if isinstance(value, list):
            kept[key] = [{f: row[f] for f in fields if f in row} for row in value]
        elif isinstance(value, dict):
            kept[key] = dict(value) if fields is None else {f: value[f] for f in fields if f in value}
    return kept


def differences(want, got, where=""):
    if isinstance(want, dict) and isinstance(got, dict):
        return [d for k in want for d in
                (differences(want[k], got[k], f"{where}.{k}") if k in got else [f"{where}.{k}: absent"])]
    if isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            return [f"{where}: {len(got)} rows, expected {len(want)}"]
        return [d for i, (w, g) in enumerate(zip(want, got)) for d in differences(w, g, f"{where}[{i}]")]
    if isinstance(want, float) and isinstance(got, (int, float)):
        return [] if abs(want - got) <= 1e-9 * max(1.0, abs(want)) else [f"{where}: {got}, expected {want}"]
    return [] if want == got else [f"{where}: {got!r}, expected {want!r}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--build", required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    failed = False
    for case in args.cases:
        with tempfile.TemporaryDirectory(prefix="lockstep-golden-") as scratch:
            out = os.path.join(scratch, "run")
            text, analysis, code = run_case(args.build, case, out)
            text = strip(text, out)
        text_path, json_path = os.path.join(case, "expect.txt"), os.path.join(case, "expect.json")
        if args.update:
            with open(text_path, "w") as f:
                f.write(text)
            with open(json_path, "w") as f:
                json.dump(dict(exit_code=code, analysis=subset(analysis)), f, indent=1)
                f.write("\n")
            print(f"{os.path.basename(case)}: written")
            continue
        with open(text_path) as f:
            want_text = f.read()
        with open(json_path) as f:
            want = json.load(f)
        diff = list(difflib.unified_diff(want_text.splitlines(), text.splitlines(), "expect.txt", "lockstep analyze", lineterm=""))
        diff += differences(want["analysis"], analysis)
        if code != want["exit_code"]:
            diff.append(f"exit code {code}, expected {want['exit_code']}")
        print(f"{os.path.basename(case)}: " + ("as expected" if not diff else "differs\n" + "\n".join(diff[:80])))
        failed |= bool(diff)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
