#!/usr/bin/env python3
"""launches and queue against stored results of HTA (HolisticTraceAnalysis f4d0062).

  hta_tables.py LOCKSTEP SHARED_DIR WORK_DIR

In HTA's window (--window hta): the tables equal HTA's numbers where HTA computes in the
trace's own whole microseconds. Where it rounds times (docs/hta.md), two steps prove the
same: HTA's numbers come from the rank file's columns with its rounding, and the tables'
come from the same columns without.
"""

import json
import math
import os
import subprocess
import sys

import h5py
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import rank_tables  # noqa: E402
import numpy as np

SETS = ("param_dlrm_8rank", "hta_df_index_rank1of2", "hta_nccl_args_rank0of2")
LAUNCH_STATS = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
METRICS = ("launch_delay", "cpu_duration", "gpu_duration")
QUANTITIES = (("count", "count"), ("mean", "mean_ns"), ("std", "std_ns"), ("min", "min_ns"), ("25%", "p25_ns"),
              ("50%", "p50_ns"), ("75%", "p75_ns"), ("max", "max_ns"))
POINTS = (("count", "point_count"), ("mean", "point_mean"), ("std", "point_std"), ("min", "point_min"),
          ("25%", "point_p25"), ("50%", "point_p50"), ("75%", "point_p75"), ("max", "point_max"))


def describe(values):
    v = np.array(values, dtype=float)
    q = np.percentile(v, (0, 25, 50, 75, 100))
    return {"count": len(v), "mean": v.mean(), "std": v.std(ddof=1), "min": q[0], "25%": q[1], "50%": q[2], "75%": q[3],
            "max": q[4]}


class Columns:
    """One rank's launches: (name, call begin, call duration, GPU begin, GPU duration, stream), in ns or HTA's us."""

    def __init__(self, path):
        with rank_tables.open_file(path, "r") as f:
            t = {n: {c: values[:].tolist() for c, values in f[n].items()}
                 for n in ("strings", "string_bytes", "meta", "api", "kernels", "copies", "steps")}
        blob = bytes(t["string_bytes"]["value"])
        self.text = [blob[o:o + n].decode() for o, n in zip(t["strings"]["offset_bytes"], t["strings"]["length_bytes"])]
        meta = {self.text[k]: self.text[v] for k, v in zip(t["meta"]["key"], t["meta"]["value"])}
        self.base = int(meta.get("base_time_ns", 0))
        self.t, self.last_mark = t, int(meta.get("last_profiler_step_ns", -2**62))
        self.rounds = any(b % 1000 for b in t["api"]["begin_ns"])

    def hta(self, begin, duration):
        """HTA's times: whole us, the begin rounded up and the end down, in double as it computes."""
        ts, dur = (begin - self.base) / 1000, duration / 1000
        if not self.rounds:
            return ts, dur
        return math.ceil(ts), math.floor(ts + dur) - math.ceil(ts)

    def pairs(self, theirs):
        convert = self.hta if theirs else lambda begin, duration: (begin - self.base, duration)
        t = self.t
        steps = sorted(set(zip(t["steps"]["index"], t["steps"]["begin_ns"])))
        until = None
        if len({i for i, _ in steps}) > 1:
            until = convert(max(max(b for _, b in steps), self.last_mark), 0)[0]
        calls = {}
        for b, d, n, c in zip(t["api"]["begin_ns"], t["api"]["duration_ns"], t["api"]["name"], t["api"]["correlation"]):
            begin, duration = convert(b, d)
            name = self.text[n]
            launches = "Launch" in name or "Memcpy" in name or "Memset" in name
            if c and launches and (until is None or begin < until):
                calls[c] = (name, begin, duration)
        for table in ("kernels", "copies"):
            k = t[table]
            for b, d, c, s in zip(k["begin_ns"], k["duration_ns"], k["correlation"], k["stream"]):
                if c in calls:
                    yield (*calls[c], *convert(b, d), s)

    def launches(self, theirs):
        values = {m: [] for m in METRICS}
        for name, begin, duration, gpu, gpu_duration, _ in self.pairs(theirs):
            if name in LAUNCH_STATS:
                for metric, value in zip(METRICS, (max(0, gpu - begin - duration), duration, gpu_duration)):
                    values[metric].append(value)
        return {m: describe(v) for m, v in values.items()}

    def queues(self, theirs, starts_first=False):
        changes = {}
        for _, begin, _, gpu, _, stream in self.pairs(theirs):
            changes.setdefault(stream, []).extend([(begin, starts_first), (gpu, not starts_first)])
        return {s: describe(np.cumsum([1 if second == starts_first else -1 for _, second in sorted(c)]))
                for s, c in changes.items()}


class Checker:
    def __init__(self, lockstep, shared, work):
        self.lockstep, self.shared, self.work, self.bad, self.compared = lockstep, shared, work, [], 0

    def run(self, *args):
        done = subprocess.run([self.lockstep, *args], capture_output=True, text=True)
        if done.returncode not in (0, 3):
            sys.exit(f"lockstep {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def table(self, run, name):
        table = json.loads(self.run("analyze", run, "--quiet", "--window", "hta", "--table", name, "--rank", "all",
                                    "--top", "0", "--json", "-"))
        columns = [c["name"] for c in table["columns"]]
        return [row for row in (dict(zip(columns, r)) for r in table["rows"]) if row["rank"] != "all"]

    def same(self, what, got, want, unit=1):
        self.compared += 1
        if got is None or not math.isclose(float(got), float(want) * unit, rel_tol=1e-9, abs_tol=1e-6):
            self.bad.append(f"{what}: {got}, expected {float(want) * unit}")

    def check(self, name):
        run = os.path.join(self.work, name)
        self.run("import", "kineto", os.path.join(self.shared, "traces", name), "-o", run, "--force", "--quiet")
        stored = os.path.join(self.shared, "expected", "hta", name)
        with open(os.path.join(stored, "cuda_kernel_launch_stats_summary.json")) as f:
            launch_stats = json.load(f)
        with open(os.path.join(stored, "queue_length_summary.json")) as f:
            queue_lengths = json.load(f)
        launches, queues = self.table(run, "launches"), self.table(run, "queue")
        for stats in launch_stats:
            rank = stats["rank"]
            columns = Columns(os.path.join(run, "ranks", f"rank-{rank:05d}.h5"))
            theirs, exact = columns.launches(True), columns.launches(False)
            rows = {row["metric"]: row for row in launches if row["rank"] == rank and row["by"] == "hta"}
            for metric in METRICS:
                for q, ours in QUANTITIES:
                    what = f"{name} rank {rank} {metric} {q}"
                    self.same(what + " of HTA from the columns", theirs[metric][q], stats[f"{metric}_{q}"])
                    unit = 1000 if not columns.rounds and q != "count" else 1
                    want = stats[f"{metric}_{q}"] if not columns.rounds else exact[metric][q]
                    self.same(what, rows[metric][ours], want, unit)
        for stats in queue_lengths:
            rank, stream = stats["rank"], stats["stream"]
            columns = Columns(os.path.join(run, "ranks", f"rank-{rank:05d}.h5"))
            row = [row for row in queues if row["rank"] == rank and row["stream"] == stream]
            # HTA sorts with numpy's unstable sort: what happens in one microsecond comes in any
            # order, and its mean lies between those of the two extremes.
            launches_first, starts_first = columns.queues(True)[stream], columns.queues(True, True)[stream]
            exact = columns.queues(False)[stream]
            for q, ours in POINTS:
                what, want = f"{name} rank {rank} stream {stream} {q}", stats[f"queue_length_{q}"]
                if q in ("mean", "std"):
                    low, high = sorted((starts_first[q], launches_first[q]))
                    room = 1e-9 if q == "mean" else 0.05 * high
                    self.compared += 1
                    if not low - room <= want <= high + room:
                        self.bad.append(f"{what} of HTA: {want}, from the columns {low} to {high}")
                else:
                    self.same(what + " of HTA from the columns", launches_first[q], want)
                self.same(what, row[0][ours] if row else None, exact[q])
                if not columns.rounds and q not in ("mean", "std"):
                    self.same(what + " in whole us", row[0][ours] if row else None, want)


def main():
    lockstep, shared, work = sys.argv[1:]
    if not os.path.isdir(os.path.join(shared, "expected", "hta")):
        print(f"Skipped: no stored results of HTA in {shared}")
        return 77
    os.makedirs(work, exist_ok=True)
    checker = Checker(lockstep, shared, work)
    for name in SETS:
        checker.check(name)
    for line in checker.bad[:30]:
        print(line)
    print(f"{'FAILED' if checker.bad else 'ok'}: {checker.compared} values, {len(checker.bad)} differ")
    return 1 if checker.bad or checker.compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
