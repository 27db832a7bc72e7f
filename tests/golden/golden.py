#!/usr/bin/env python3
"""Golden cases: run.trace -> rank files -> `lockstep analyze`; the facts of its analysis.json and the exit code against
expect.json, and where there is an expect.txt the tables of its text.

  golden.py --build BUILD CASE_DIR... [--update]

Facts are identities and numbers, no sentences: of these, the numbers with their units that expect.json names must occur,
in whatever words. Keys that expect.json does not name are free. --update rewrites both; the git diff is the review.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cases

# What update stores: facts that would be wrong if they changed silently. None: all that are no text.
KEPT = {
    "suspicious": None,
    "run": ("ranks", "ranks_expected", "ranks_missing", "ranks_ended_early", "nodes", "steps", "warmup_steps", "incomplete_steps",
            "window", "gpu_ranks", "gpus"),
    "trust": ("clock_error_ns_p50", "clock_error_ns_max", "events", "dropped", "collectives", "unmatched_collectives",
              "mismatched_collectives", "clock_violations", "overhead_fraction"),
    "summary": None,
    "collectives": ("op", "group", "bytes", "count", "transfer_ns_median", "wait_ns_median", "longest_wait_rank",
                    "longest_wait_ns_median", "busbw", "censored", "partial", "grouped"),
    "arrivals": ("rank", "last", "ties", "charge_ns"),
    "ranks": ("rank", "node", "span_ns", "compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns",
              "exposed_copy_ns", "idle_ns", "late_ns_median"),
    "overlap": None,
    "buckets": ("sizes", "recognised_by", "steps_matched", "recommended_cap_mb", "flat_cap_mb"),
    "p2p": ("messages", "bytes", "matched", "late_sender_ns", "wrong_order_ns", "late_receiver_ns", "pair_count"),
    "idle_causes": ("cause", "ns", "finding"),
    "losses": ("name", "rank", "count", "severity"),
    "stragglers": ("rank", "kind", "cause", "price_ns_per_step", "priced_by", "onset_step"),
    "findings": ("id", "rank", "hosts", "saves_ns_per_step", "upper_bound", "replayed", "extrapolated"),
}
UNITS = r"(?:ns|us|ms|s|%|[kMGT]?B(?:/s)?|[KMG]iB(?:/s)?|MHz|times)(?![\w/])"


def numbers(*sentences):
    """`12 720 events in 4.79 ms of rank 2` -> 12720, 2, 4.79 ms"""
    text = re.sub(r"(?<=\d)[  ](?=\d{3}(?!\d))", "", "\n".join(s for s in sentences if s))
    found = re.findall(rf"(?<![\w.])\d+(?:\.\d+)?(?: ?{UNITS})?", text)
    return sorted(set(found), key=lambda n: (float(re.match(r"[\d.]+", n)[0]), n))


def facts(analysis):
    kept = {"numbers": numbers(analysis["verdict"], *analysis["remarks"], analysis["additivity"])}
    for key, fields in KEPT.items():
        value = analysis[key]
        of = lambda row: dict(row) if fields is None else {f: row[f] for f in fields}
        kept[key] = [of(row) for row in value] if isinstance(value, list) else of(value) if isinstance(value, dict) else value
    for finding, row in zip(analysis["findings"], kept["findings"]):
        row["numbers"] = numbers(finding["headline"], finding["evidence"], finding["action"])
    return kept


def differences(want, got, where=""):
    if isinstance(want, dict) and isinstance(got, dict):
        return [d for k in want for d in
                (differences(want[k], got[k], f"{where}.{k}") if k in got else [f"{where}.{k}: absent"])]
    if where.endswith(".numbers"):
        return [f"{where}: {n} is not among {got}" for n in want if n not in got]
    if isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            return [f"{where}: {len(got)} rows, expected {len(want)}"]
        return [d for i, (w, g) in enumerate(zip(want, got)) for d in differences(w, g, f"{where}[{i}]")]
    # Results of statistics may move in their last digits with the maths library; times of the identity may not.
    if isinstance(want, float) and isinstance(got, (int, float)):
        return [] if abs(want - got) <= 1e-9 * max(1.0, abs(want)) else [f"{where}: {got}, expected {want}"]
    return [] if want == got else [f"{where}: {got!r}, expected {want!r}"]


def lines(value):
    """JSON with a line for each row."""
    def one(inner):
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            return "[\n  " + ",\n  ".join(map(json.dumps, inner)) + "]"
        return json.dumps(inner)
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {one(inner)}" for key, inner in value.items()) + "\n}\n"


def tables(text):
    """The bar of the step with its legend, ranks and collectives: no sentences."""
    blocks = {block.split()[0]: block.splitlines() for block in text.split("\n\n") if block.strip()}
    bar = [line for line in blocks["STEP"] if re.match("  [█▒░▓▚·]", line)]
    return "".join(line.rstrip() + "\n" for line in [*bar, "", *blocks["RANKS"], "", *blocks["COLLECTIVES"]])


def check(build, case, update):
    """Lines about what differs."""
    with tempfile.TemporaryDirectory(prefix="lockstep-golden-") as scratch:
        run, path = os.path.join(scratch, "run"), os.path.join(scratch, "analysis.json")
        env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
        env.update(NO_COLOR="1", LC_ALL="C.UTF-8", COLUMNS="100")
        for command in ([os.path.join(build, "make_run"), os.path.join(case, "run.trace"), run],
                        [os.path.join(build, "lockstep"), "analyze", run, "--json", path]):
            done = subprocess.run(command, capture_output=True, text=True, env=env)
            if done.returncode not in (0, 3):
                return [f"{command}: exit {done.returncode}", *(done.stdout + done.stderr).splitlines()]
        with open(path) as f:
            found = dict(exit_code=done.returncode, **facts(json.load(f)))
    expected, shown = os.path.join(case, "expect.json"), os.path.join(case, "expect.txt")
    text = tables(done.stdout) if os.path.exists(shown) else None
    if update:
        with open(expected, "w") as f:
            f.write(lines(found))
        if text:
            with open(shown, "w") as f:
                f.write(text)
    with open(expected) as f:
        bad = differences(json.load(f), found)
    if text:
        with open(shown) as f:
            bad += difflib.unified_diff(f.read().splitlines(), text.splitlines(), "expect.txt", "lockstep analyze", lineterm="")
    return bad[:80]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--build", required=True)
    parser.add_argument("--entry")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    return cases.run(args.build, args.entry, [("golden." + os.path.basename(os.path.normpath(case)),
                                               lambda case=case: check(args.build, case, args.update)) for case in args.cases])


if __name__ == "__main__":
    sys.exit(main())
