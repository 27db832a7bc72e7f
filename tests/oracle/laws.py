#!/usr/bin/env python3
"""What every analysis.json must obey, whatever was measured: sums, orders of quantiles, shares, intervals, references.

  laws.py ANALYSIS.json ...     exit 1 and a line for each law that is broken

The laws are those of docs/definitions.md and docs/analysis-json.md. Nothing is compared with expected values, so that the
result of any run of anybody can be checked.
"""

import json
import math
import re
import sys

TERMS = ["compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns"]
OF_IDLE = ["mpi_other_ns", "input_ns"]  # Parts of idle that share no time; those of mpi_other are OF_OTHER.
OF_BLOCKED = [f"blocked_{kind}_ns" for kind in ("sleep", "lock", "python", "file", "socket", "unplaced")]
OF_OTHER = ["mpi_io_ns", "mpi_rma_ns", "mpi_setup_ns"]
BUSBW = {"all-reduce": lambda n: 2 * (n - 1) / n, "all-gather": lambda n: (n - 1) / n,
         "reduce-scatter": lambda n: (n - 1) / n, "all-to-all": lambda n: (n - 1) / n}


class Laws:
    def __init__(self, document):
        self.d, self.broken = document, []

    def law(self, holds, where, says):
        if not holds:
            self.broken.append(f"{where}: {says}")

    def ordered(self, where, **values):
        """Values that are known do not fall, in the order in which they are given."""
        known = [(name, value) for name, value in values.items() if value is not None]
        for (a, low), (b, high) in zip(known, known[1:]):
            self.law(low <= high, where, f"{a} {low} > {b} {high}")

    def interval(self, where, bounds, value=None):
        if bounds is not None:
            self.ordered(where, low=bounds[0], value=value, high=bounds[1])

    def terms(self, where, row, length):
        """The identity, and what is part of a term."""
        values = [row[name] for name in TERMS]
        for name, value in zip(TERMS, values):
            self.law(value is None or value >= 0, where, f"{name} is {value}")
        if None not in values:
            self.law(sum(values) == length, where, f"the terms sum to {sum(values)}, not to {length}")
            # Means over ranks are floored part by part.
            for term, names in (("idle_ns", OF_IDLE), ("blocked_ns", OF_BLOCKED)):
                parts = sum(row[name] for name in names if name in row)
                self.law(parts <= row[term] + len(names), where, f"parts of {term} {parts} > {row[term]}")
        other = sum(row[name] for name in OF_OTHER)
        self.law(other <= row["mpi_other_ns"] + len(OF_OTHER), where, f"parts {other} > mpi_other {row['mpi_other_ns']}")

    def share(self, where, fraction, part, whole):
        self.law((fraction is None) == (whole == 0), where, f"a share of {fraction} of {whole}")
        if fraction is not None and whole:
            self.law(0 <= fraction <= 1 and math.isclose(fraction, part / whole, rel_tol=1e-6, abs_tol=1e-6), where,
                     f"{part} of {whole} is not {fraction}")

    def summary(self):
        s = self.d["summary"]
        if s["of"] == "mean_step":
            self.terms("summary", s, s["step_ns_mean"])
            self.law(s["step_ns_median"] == s["job_step_ns_median"], "summary", "two medians of the step")
            index = [step for step in self.d["steps"] if step["index"] == s["median_step"]]
            self.law(self.d["truncated"] or len(index) == 1, "summary", f"step {s['median_step']} is listed {len(index)} times")
            for step in index:
                self.law(step["step_ns"] == s["step_ns_median"], "summary", f"step {s['median_step']} takes {step['step_ns']}")
                self.law(step["complete"] and not step["warmup"], "summary", "the median step is no step that counts")
        self.ordered("summary", shortest=s["job_step_ns_min"], p10=s["job_step_ns_p10"], median=s["job_step_ns_median"], p99=s["job_step_ns_p99"], longest=s["job_step_ns_max"])
        self.share("summary", s["overlap_fraction"], s["hidden_comm_ns"], s["comm_ns"])
        self.ordered("summary", zero=0, overlap_low=s["overlap_low"], overlap_high=s["overlap_high"], one=1)
        counted = [step["step_ns"] for step in self.d["steps"]
                   if step["complete"] and not step["warmup"] and step["step_ns"] is not None]
        if not self.d["truncated"] and counted and s["of"] == "mean_step":
            counted.sort()
            self.law(s["step_ns_mean"] == sum(counted) // len(counted), "summary", f"mean of the listed steps is {sum(counted) // len(counted)}")
            for name, p, least in (("min", 0, 1), ("p10", 0.1, 10), ("median", 0.5, 1), ("p99", 0.99, 100)):
                want = counted[int(p * (len(counted) - 1) + 1e-9)] if len(counted) >= least else None
                self.law(s[f"job_step_ns_{name}"] == want, "summary", f"{name} of the listed steps is {want}, not {s[f'job_step_ns_{name}']}")

    def ranks(self):
        known = set()
        for r in self.d["ranks"]:
            where = f"rank {r['rank']}"
            self.law(r["rank"] not in known, where, "listed twice")
            known.add(r["rank"])
            self.terms(where, r, r["span_ns"])
            self.share(where, r["overlap_fraction"], r["overlap_ns"], r["comm_ns"])
            self.ordered(where, overlap=r["overlap_ns"], overlap_high=r["overlap_high_ns"])
            exposed = r["exposed_wait_ns"] + r["exposed_transfer_ns"] + r["exposed_unsplit_ns"]
            self.law(r["exposed_comm_ns"] == exposed, where, f"exposed communication {r['exposed_comm_ns']}, its terms {exposed}")
            self.interval(where + ", score", r["straggler_interval"], r["straggler_score"])
            self.law(r["last_fraction"] is None or 0 <= r["last_fraction"] <= 1, where, f"last_fraction {r['last_fraction']}")
        run = self.d["run"]
        self.law(len(known) == run["ranks"], "run", f"{run['ranks']} ranks, {len(known)} rows")
        self.law(not known & set(run["ranks_missing"]), "run", "a missing rank has a row")
        self.ordered("run", ranks=run["ranks"], ranks_expected=run["ranks_expected"])
        return known

    def steps(self):
        before = None
        for step in self.d["steps"]:
            where = f"step {step['index']}"
            self.law(before is None or step["index"] > before, where, "not in order")
            before = step["index"]
            lengths = []
            for r in step["ranks"]:
                here = f"{where}, rank {r['rank']}"
                self.terms(here, r, r["end_ns"] - r["begin_ns"])
                self.ordered(here, zero=0, overlap=r["overlap_ns"], comm=r["comm_ns"], length=r["end_ns"] - r["begin_ns"])
                lengths.append(r["end_ns"] - r["begin_ns"])
            if step["complete"] and lengths and len(lengths) == self.d["run"]["ranks"]:
                self.law(step["step_ns"] == sum(lengths) // len(lengths), where, f"{step['step_ns']} is not the mean of its ranks'")

    def collectives(self):
        for c in self.d["collectives"]:
            where = f"{c['op']} of {c['bytes']} on {c['comm']}"
            for name in ("censored", "partial", "grouped"):
                self.law(0 <= c[name] <= c["count"], where, f"{name} {c[name]} of {c['count']}")
            self.ordered(where, wait=c["wait_ns_median"], longest_wait=c["longest_wait_ns_median"])
            self.law((c["algbw"] is None) == (c["busbw"] is None), where, "one of two bandwidths")
            if c["algbw"] is not None:
                n = len(ranks_of(c["group"]))
                factor = BUSBW.get(c["op"], lambda _: 1)(n)
                self.law(math.isclose(c["busbw"], c["algbw"] * factor, rel_tol=1e-3), where, f"busbw {c['busbw']} of algbw {c['algbw']}, {n} ranks")
        for a in self.d["arrivals"]:
            self.law(0 <= a["last"] + a["ties"] <= a["collectives"], f"arrivals of rank {a['rank']}", f"{a['last']} + {a['ties']} of {a['collectives']}")
            self.law(a["charge_ns"] >= 0, f"arrivals of rank {a['rank']}", "a charge below 0")
        if self.d["p2p"]:
            p = self.d["p2p"]
            for row in [p] + p["pairs"]:
                where = f"messages {row.get('source', 'of all')} -> {row.get('destination', '')}"
                self.law(row["matched"] + row["unmatched"] <= row["messages"] or row is p, where, "more found than there are")
                self.law((row["late_sender_ns"] == 0) == (row["late_sender_count"] == 0), where, "late senders' time without a count")
                self.ordered(where, zero=0, wrong_order=row["wrong_order_ns"], late_sender=row["late_sender_ns"])
            for name in ("messages", "bytes", "matched", "late_sender_ns", "late_receiver_ns"):
                of_pairs = sum(row[name] for row in p["pairs"])
                self.law(of_pairs <= p[name] and (p["truncated"] or p["unplaced"] or of_pairs == p[name]), "messages",
                         f"{name} {p[name]}, of pairs {of_pairs}")

    def replay(self):
        overlap = self.d["overlap"]
        if overlap:
            self.ordered("overlap", zero=0, free=overlap["t_free_comm_ns"], actual=overlap["t_actual_ns"])
            self.ordered("overlap", zero=0, best=overlap["t_best_ns"], actual=overlap["t_actual_ns"])
            self.law(overlap["comm_cost_ns"] == overlap["t_actual_ns"] - overlap["t_free_comm_ns"], "overlap", "comm_cost")
            self.law(overlap["achievable_gain_ns"] == overlap["t_actual_ns"] - overlap["t_best_ns"], "overlap", "achievable_gain")
        if self.d["replay"] and self.d["replay"].get("steps"):
            self.law(self.d["replay"]["self_error"] >= 0, "replay", "an error below 0")
            path = sum(part["ns"] for part in self.d["critical_path"])
            r = self.d["replay"]
            lengths = [s["end_ns"] - s["begin_ns"] for step in self.d["steps"] if r["first_step"] <= step["index"] <= r["last_step"]
                       for s in step["ranks"]]
            whole = any(note.startswith("no complete steps") for note in r["notes"])
            # Ranks need not begin a step at the same time.
            self.law(not lengths or whole or self.d["truncated"] or path <= 1.5 * max(lengths), "critical path",
                     f"{path} of steps of at most {max(lengths or [0])}")
        b = self.d["buckets"]
        for row in (b or {}).get("curve") or []:
            where = f"curve at {row['cap_mb']} MiB"
            self.ordered(where, zero=0, low=row["low_ns"], predicted=row["predicted_step_ns"], high=row["high_ns"])
        if b and b["curve"]:
            self.ordered("curve", **{str(row["cap_mb"]): row["cap_mb"] for row in b["curve"]})
            self.ordered("number of buckets", **{f"of {row['cap_mb']}": -row["buckets"] for row in b["curve"]})
        if b:
            self.ordered("buckets", zero=0, steps_matched=b["steps_matched"], steps=b["steps"])

    def answers(self, known):
        step = self.d["summary"]["step_ns_mean"]
        longest = max([step or 0] + [s["step_ns"] or 0 for s in self.d["steps"]])
        for s in self.d["stragglers"]:
            where = f"straggler {s['rank']}"
            self.law(s["rank"] in known, where, "not a rank of the run")
            self.interval(where + ", score", s["interval"], s["score"])
            self.interval(where + ", waiting", s["saves_interval_ns"], s["saves_ns_per_step"])
            self.law(0 <= s["p_value"] <= 1, where, f"p {s['p_value']}")
            if step and s["price_ns_per_step"] is not None:
                self.law(0 <= s["price_ns_per_step"] <= longest, where, f"a price of {s['price_ns_per_step']} of a step of {step}")
        saves = []
        for place, f in enumerate(self.d["findings"]):
            where = f"finding {f['id']}"
            self.interval(where, f["saves_interval_ns"], f["saves_ns_per_step"])
            self.law(f["saves_ns_per_step"] is None or f["saves_ns_per_step"] >= 0, where, f"saves {f['saves_ns_per_step']}")
            if step and f["saves_ns_per_step"] is not None:
                self.law(f["saves_ns_per_step"] <= longest, where, f"saves {f['saves_ns_per_step']} of a step of {step}")
            self.law(f["saves_share"] is None or 0 <= f["saves_share"] <= 1, where, f"a share of {f['saves_share']}")
            self.law(f["rank"] is None or f["rank"] in known | set(self.d["run"]["ranks_missing"]), where, f"rank {f['rank']} is not in the run")
            for text in ("headline", "evidence", "action"):
                # Who takes turns beside ranks that are named, no collective need show.
                none = text == "evidence" and f["id"] == "wait.turns" and self.d["stragglers"]
                self.law((f[text] or none) and "\n" not in f[text], where, f"{text} is {f[text]!r}")
            for row in f["explain"]["rows"]:
                self.law(len(row) == len(f["explain"]["columns"]), where, "a row of other columns")
            # A bound counts half; what says what is broken comes before what it costs, and what has no cause last. So does
            # a bound that says what to change: it stands before what transfers cost in all, if it is worth half of that.
            after = self.d["findings"][place + 1:place + 2]
            remedy = f["id"] in ("buckets.cap", "fsdp.units") and f["upper_bound"] and f["saves_ns_per_step"] is not None and any(
                t["id"] == "transfer.exposed" and 2 * f["saves_ns_per_step"] >= (t["saves_ns_per_step"] or 0) for t in after)
            if f["saves_ns_per_step"] is not None and f["id"] not in ("link.slow", "starved", "idle.other") and not remedy:
                saves.append(f["saves_ns_per_step"] / (2 if f["upper_bound"] else 1))
        self.law(len(self.d["findings"]) <= 5, "findings", "more than five")
        self.law(saves == sorted(saves, reverse=True), "findings", f"not the costliest first: {saves}")

    def rest(self, known):
        t = self.d["trust"]
        self.ordered("trust", p50=t["clock_error_ns_p50"], max=t["clock_error_ns_max"])
        for name in ("unmatched_collectives", "mismatched_collectives", "clock_violations"):
            self.law(0 <= t[name] <= t["collectives"], "trust", f"{name} {t[name]} of {t['collectives']}")
        causes = self.d["idle_causes"]
        if causes and not self.d["run"]["gpu_ranks"]:
            self.law(sum(row["ns"] for row in causes) <= self.d["summary"]["idle_ns"] + len(causes), "idle causes", "more than idle")
        for row in causes:
            self.law(row["ns"] >= 0, "idle causes", f"{row['cause']} {row['ns']}")
        for row in self.d["critical_path"]:
            self.law(row["ns"] >= 0 and (row["rank"] is None or row["rank"] in known), "critical path", str(row))
            self.law("ProfilerStep#" not in row["what"], "critical path", f"a part of a step is named {row['what']}")
        for row in self.d["delays"]:
            self.law(row["rank"] in known and row["short_term_ns"] >= 0 and row["long_term_ns"] >= 0, "delays", str(row))
        for loss in self.d["losses"]:
            self.law(loss["count"] > 0 and loss["sentence"] and loss["remedy"], f"loss {loss['name']}", str(loss))

    def texts(self, value, where=""):
        """No number that is none, no control character, nothing that a formatter left over."""
        if isinstance(value, dict):
            for key, inner in value.items():
                self.texts(inner, f"{where}.{key}")
        elif isinstance(value, list):
            for inner in value:
                self.texts(inner, where + "[]")
        elif isinstance(value, float):
            self.law(math.isfinite(value), where, str(value))
        elif isinstance(value, str):
            self.law(not re.search(r"(?<![\w/.])-?(nan|inf)(?![\w/.])|\{\}|-\d+(\.\d+)? (ns|us|ms|s|%)(?!\w)", value), where, repr(value))
            self.law(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value), where, "control characters in " + repr(value))

    def all(self):
        self.summary()
        known = self.ranks()
        self.steps()
        self.collectives()
        self.replay()
        self.answers(known)
        self.rest(known)
        self.texts(self.d)
        return self.broken


def ranks_of(group):
    """`0-3,8` -> [0, 1, 2, 3, 8]"""
    ranks = []
    for part in re.findall(r"\d+(?:-\d+)?(?::\d+)?", group):
        numbers = [int(n) for n in re.findall(r"\d+", part)]
        ranks += range(numbers[0], numbers[1] + 1, numbers[2] if len(numbers) > 2 else 1) if len(numbers) > 1 else numbers
    return ranks


def broken_in(path):
    with open(path) as file:
        return Laws(json.load(file)).all()


if __name__ == "__main__":
    count = 0
    for name in sys.argv[1:]:
        for line in broken_in(name):
            print(f"{name}: {line}")
            count += 1
    sys.exit(1 if count else 0)
