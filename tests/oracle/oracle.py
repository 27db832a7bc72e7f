#!/usr/bin/env python3
"""Expected values of a make_run text, computed without Lockstep, and what differs from them.

  oracle.py SPEC [--set key=value ...]               prints the expected values as JSON

check_case.py compares. With ideal clocks every value must be equal to the nanosecond. With distorted
ones times agree within twice the published clock error and the drift.
"""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import definitions
import identity
import numpy as np
import rank_tables
import simulate


def activities_of(run):
    out = []
    for r in run.ranks:
        if r.rank in run.d.missing:
            continue
        a = definitions.Activity(r.rank, run.d.gpu and bool(r.kernels or any(k is not None for _, k, _ in r.launches)))
        a.training_calls = [(b, e) for b, e, thread, _ in r.calls if thread == 0]
        a.all_calls = [(b, e) for b, e, _, _ in r.calls]
        a.other_calls = [(b, e) for b, e, thread, other in r.calls if other and thread == 0]
        a.io_calls = [(b, e) for b, e, thread, other in r.calls if other == "io" and thread == 0]
        a.rma_calls = [(b, e) for b, e, thread, other in r.calls if other == "rma" and thread == 0]
        a.setup_calls = [(b, e) for b, e, thread, other in r.calls if other == "init" and thread == 0]
        a.inputs, a.ops, a.kernels, a.copies = r.inputs, r.ops, r.kernels, r.copies
        a.waits = r.waits
        a.delays = [(at, off_cpu) for (_, at, _), (_, off_cpu) in zip(r.marks, r.cpu_at_marks)]
        a.steps = [(begin, end, True, cpu_end - cpu, None) for (_, begin, last), (_, end, _), (cpu, _), (cpu_end, _) in
                   zip(r.marks, r.marks[1:], r.cpu_at_marks, r.cpu_at_marks[1:]) if not last]
        a.life_end = max([r.sign] + [e for _, e in r.gpu_events])
        out.append(a)
    return out


def damage(run, activities):
    """`delete` and `drop` of collectives rows; other tables do not enter the expected values."""
    for d in run.d.damage:
        for a in activities:
            if a.rank == int(d["rank"]) and d["table"] == "collectives":
                collectives = [op for op in a.ops if not op.get("p2p")]
                row, count = int(d.get("row", 0)), int(d.get("count", 1))
                gone = {id(op) for op in collectives[row:row + count]}
                a.ops = [op for op in a.ops if id(op) not in gone]


def step_windows(run, r):
    """(index, begin, end, complete) on this rank."""
    out = []
    for (index, at, last), after in zip(r.marks, r.marks[1:] + [None]):
        if last:
            continue
        end = after[1] if after else max([r.sign] + [e for _, e in r.gpu_events])
        out.append([index, at, end, after is not None])
    if run.d.gpu:
        # First kernel launched in the step to first kernel launched in the next one; the first begins on the host if the
        # GPU has nothing left to do, and the last ends when host and GPU are done.
        marks = [(b, e) for _, b, e, _ in out]
        firsts = [min((k for l, k, _ in r.launches if k is not None and b <= l < e), default=None) for b, e in marks]
        done_by = lambda host: max((end for l, _, end in r.launches if l < host), default=host)
        busy = [i for i, begin in enumerate(firsts) if begin is not None]
        for i, after in zip(busy, busy[1:] + [None]):
            out[i][1] = firsts[i]
            out[i][2] = firsts[after] if after is not None else max(marks[i][1], done_by(marks[-1][1]))
        if busy and done_by(marks[0][0]) <= marks[busy[0]][0]:
            out[busy[0]][1] = min(marks[busy[0]][0], out[busy[0]][1])
    return [tuple(w) for w in out]


def expect(run, activities):
    """Of the simulation and its activities_of, which this adds to."""
    d = run.d
    damage(run, activities)
    instances = definitions.set_limits(activities, definitions.match(activities))
    definitions.late_partners(activities)
    steps, by_rank = {}, {}
    for a in activities:
        definitions.split_rows(a)
        sets_of = definitions.Breakdown(a)
        for index, begin, end, complete in step_windows(run, run.ranks[a.rank]):
            by_rank[(index, a.rank)] = dict(begin_ns=begin, end_ns=end, complete=complete, **sets_of.terms(begin, end))
            steps.setdefault(index, {})[a.rank] = (begin, end, complete)
    step_times = {}
    with_steps = len({r for s in steps.values() for r in s})
    for index in sorted(steps):
        s = steps[index]
        whole = len(s) == with_steps and all(c for _, _, c in s.values())
        if whole:
            step_times[index] = sum(e - b for b, e, _ in s.values()) // len(s)
    out = []
    for i in instances:
        rows = sorted(i["rows"], key=lambda r: r["rank"])
        transfers = [r["transfer"] for r in rows if r["transfer"] is not None]
        censored = any(r["censored"] for r in rows) and i["split"] or (i["split"] and not i["whole"])
        (comm, group), function, seq, start = i["key"]
        out.append(dict(comm=comm, group=group, function=function, seq=seq, start=start, kind=rows[0]["kind"], bytes=rows[0]["bytes"],
                        seen=len(rows), last_rank=i["last_rank"], charge_ns=i["charge"],
                        last_arrival_ns=i["last_arrival"], censored=bool(censored),
                        transfer_ns=definitions.lower_median(transfers) if transfers and i["whole"] else -1,
                        ranks={r["rank"]: dict(arrival_ns=r["arrival"],
                                               wait_ns=-1 if r["wait"] is None else r["wait"],
                                               transfer_ns=-1 if r["transfer"] is None else r["transfer"])
                               for r in rows}))
    return dict(ranks=d.ranks, step_ranks=[dict(index=i, rank=r, **v) for (i, r), v in sorted(by_rank.items())],
                   step_ns=step_times, collectives=out)


def load(path, *tables):
    """{table: {column: list}}"""
    with rank_tables.open_file(path) as f:
        return {table: {c: values[:].tolist() for c, values in f[table].items()} for table in tables}


def clock_errors(d, expected, timeline, run_dir, bad):
    """The published error must hold the true one at 99.9 % of all arrivals. Gives its maximum, ns."""
    if d.ideal_clocks:
        return 0
    truth = {(r, e["comm"], e["group"], e["function"], e["seq"], e["start"]): v["arrival_ns"]
             for e in expected["collectives"] for r, v in e["ranks"].items()}
    names, largest, errors, outside = list(d.comms), 0, [], 0
    clock = {c: np.array(values) for c, values in timeline["clock"].items()}
    for rank in range(d.ranks):
        path = os.path.join(run_dir, "ranks", f"rank-{rank:05d}.h5")
        if rank in d.missing or not os.path.exists(path):
            continue
        clock_map = identity.ClockMap(clock, rank)
        # This rank's communicators, in the order of the text.
        mine = [(n, g) for n in names for g, members in enumerate(d.groups(n)) if rank in members]
        c = load(path, "collectives")["collectives"]
        for comm, kind, seq, start, begin in zip(*(c[name] for name in ("comm", "kind", "seq", "start", "begin_ns"))):
            want = truth.get((rank,) + mine[comm] + (kind if d.gpu else 0, seq, start))
            if want is None:
                continue
            error, published = abs(clock_map.to_cluster(begin) - want), clock_map.error(begin)
            errors.append(error)
            largest = max(largest, published)
            outside += error > published
    if outside > 0.001 * len(errors):
        bad.append(f"clock: the published error, at most {largest} ns, does not hold at {outside} of {len(errors)} arrivals: "
                   f"median {int(np.median(errors))} ns, max {max(errors)} ns")
    return max(largest, 1)


def check_timeline(d, expected, run_dir):
    timeline = load(os.path.join(run_dir, "timeline.h5"), "clock", "step_ranks", "steps", "collectives", "collective_ranks")
    bad = []
    doubt = clock_errors(d, expected, timeline, run_dir, bad)
    tolerance = 2 * doubt

    def same(what, got, want, exact=False, length=0):
        # A length on a clock that drifts differs from the true one: 100 ppm is more than any text here uses.
        allowed = 0 if exact or d.ideal_clocks else tolerance + length // 10_000
        if abs(got - want) > allowed:
            bad.append(f"{what}: lockstep {got}, oracle {want}")

    s = timeline["step_ranks"]
    found = {(row["index"], row["rank"]): row for row in (dict(zip(s, values)) for values in zip(*s.values()))}
    if not d.marks:
        # Steps from the collectives' signature have boundaries of their own; their identity is identity.py's matter.
        # What repeats is no step where a tenth of the time is elsewhere, as in MPI_Finalize.
        if len({index for index, _ in found}) < d.steps - 2 and (found or not d.bodies["teardown"]):
            bad.append(f"{len(found)} cells of unmarked steps, {d.steps} steps were run")
        found, expected = {}, dict(expected, step_ranks=[], step_ns={})
    for e in expected["step_ranks"]:
        got = found.pop((e["index"], e["rank"]), None)
        what = f"step {e['index']} rank {e['rank']}"
        if got is None:
            bad.append(what + ": missing in timeline")
            continue
        if d.ideal_clocks:
            same(what + " begin", got["begin_ns"], e["begin_ns"])
            same(what + " end", got["end_ns"], e["end_ns"])
        same(what + " complete", got["complete"], e["complete"], True)
        for term in definitions.COLUMNS:
            # With clocks that err, a wait near what they can tell counts or does not.
            if term in definitions.LATE and not d.ideal_clocks:
                continue
            same(f"{what} {term}", got[term], e[term], length=e["end_ns"] - e["begin_ns"])
    for key in found:
        bad.append(f"step {key[0]} rank {key[1]}: not expected")

    s = timeline["steps"]
    for i in range(len(s["index"])):
        want = expected["step_ns"].get(s["index"][i])
        if want is not None:
            same(f"step {s['index'][i]} step_ns", s["step_ns"][i], want)

    # Communicators have the order of the text in every rank file.
    names = list(d.comms)
    ids, numbers = {}, {}
    for name in names:
        for group, members in enumerate(d.groups(name)):
            present = [m for m in members if m not in d.missing]
            if not present:
                continue
            rank = present[0]
            row = sum(1 for other in names[:names.index(name)] if any(rank in g for g in d.groups(other)))
            if rank not in numbers:
                numbers[rank] = load(os.path.join(run_dir, "ranks", f"rank-{rank:05d}.h5"), "comms")["comms"]["global_id"]
            ids[(name, group)] = numbers[rank][row]
    c, m = timeline["collectives"], timeline["collective_ranks"]
    rows_of = {}
    for i in range(len(m["rank"])):
        rows_of.setdefault(m["collective"][i], []).append(i)
    index = {(c["comm_id"][i], c["kind"][i] if d.gpu else 0, c["seq"][i], c["start"][i]): i for i in range(len(c["seq"]))}
    for e in expected["collectives"]:
        i = index.pop((ids[(e["comm"], e["group"])], e["function"], e["seq"], e["start"]), None)
        what = f"collective {e['comm']}/{e['group']} {e['function']} seq {e['seq']} start {e['start']}"
        if i is None:
            bad.append(what + ": missing in timeline")
            continue
        for column in ("seen", "kind", "bytes", "censored"):
            if d.ideal_clocks or column != "censored":
                same(f"{what} {column}", c[column][i], e[column], True)
        if d.ideal_clocks:
            same(what + " last_rank", c["last_rank"][i], e["last_rank"], True)
            same(what + " last_arrival", c["last_arrival_ns"][i], e["last_arrival_ns"])
        elif e["charge_ns"] > 10 * tolerance:
            same(what + " last_rank", c["last_rank"][i], e["last_rank"], True)
        same(what + " charge", c["charge_ns"][i], e["charge_ns"])
        if d.ideal_clocks or (e["transfer_ns"] >= 0 and not c["censored"][i]):
            same(what + " transfer", c["transfer_ns"][i], e["transfer_ns"])
        for row in rows_of.get(i, []):
            rank = m["rank"][row]
            want = e["ranks"].get(rank)
            if want is None:
                bad.append(f"{what}: rank {rank} not expected")
                continue
            same(f"{what} rank {rank} wait", m["wait_ns"][row], want["wait_ns"])
            if d.ideal_clocks or (want["transfer_ns"] >= 0 and m["transfer_ns"][row] >= 0):
                same(f"{what} rank {rank} transfer", m["transfer_ns"][row], want["transfer_ns"])
            if d.ideal_clocks:
                same(f"{what} rank {rank} arrival", m["arrival_ns"][row], want["arrival_ns"])
    for key in index:
        bad.append(f"collective {key}: not expected")
    if any(c["violation"]):
        bad.append(f"{sum(c['violation'])} clock violations on a sound trace")
    return bad, tolerance


def check_analysis(run, expected, analysis):
    """What analysis.json says per step and rank must be the oracle's numbers."""
    bad, d = [], run.d
    if d.gpu:
        check_gpus(d, analysis, run, bad)
    if not d.marks:
        return bad
    want = {(e["index"], e["rank"]): e for e in expected["step_ranks"]}
    for step in analysis.get("steps", []):
        for cell in step["ranks"]:
            e = want.get((step["index"], cell["rank"]))
            if e is None:
                bad.append(f"analysis: step {step['index']} rank {cell['rank']} not expected")
                continue
            for term in definitions.TERMS:
                if d.ideal_clocks and cell[term] != e[term]:
                    bad.append(f"analysis: step {step['index']} rank {cell['rank']} {term}: {cell[term]}, oracle {e[term]}")
    return bad


def check_gpus(d, analysis, run, bad):
    """Sensors, profiling's own time, operations that share a kernel: what analysis.json says of them."""
    def same(what, got, want):
        if got != want and not (isinstance(want, float) and isinstance(got, float) and abs(got - want) < 1e-12):
            bad.append(f"analysis: {what}: {got}, oracle {want}")

    if d.sensors and d.ideal_clocks and not d.ends and d.marks:
        for gpu in analysis["gpus"]:
            r = run.ranks[gpu["rank"]]
            end = max([r.t, r.compute_free, r.copy_free, *r.comm_free.values()])
            times = range(d.epoch, end + 1, d.sensors["period"])
            throttle = d.throttled.get(r.rank)
            within = [t for t in times if r.marks[0][1] <= t <= r.marks[-1][1]] or list(times)
            same(f"rank {r.rank} samples", gpu["samples"], len(within))
            same(f"rank {r.rank} clock", gpu["sm_clock_mhz"], throttle["clock"] if throttle else d.sensors["clock"])
            same(f"rank {r.rank} throttled", gpu["throttled"], len(within) if throttle else 0)
            same(f"rank {r.rank} reasons", gpu["throttle_reasons"], throttle["reasons"] if throttle else 0)
        same("GPUs with sensors", len(analysis["gpus"]), d.ranks)
    elif not d.sensors:
        same("GPUs with sensors", analysis["gpus"], [])
    taken = sum(definitions.length(definitions.union(r.overheads)) for r in run.ranks)
    if d.ideal_clocks and not d.ends and not d.missing:
        span = sum(row["span_ns"] for row in analysis["ranks"])
        same("overhead", analysis["trust"]["overhead_fraction"], taken / span if taken else None)
    shared = {}
    for body, times in (("setup", 1), ("step", d.steps), ("teardown", 1)):
        for op in d.bodies[body]:
            if op["do"] == "nccl" and len(op["parts"]) > 1 and not op["on"] and not d.ends:
                shared[op["comm"]] = shared.get(op["comm"], 0) + times * len(op["parts"]) * len(d.groups(op["comm"]))
    if not d.ends:
        same("operations that share a kernel", sum(row["grouped"] for row in analysis["collectives"]), sum(shared.values()))
    for row in analysis["collectives"]:
        if row["grouped"] == row["count"]:
            same(f"transfer of {row['bytes']} bytes that always share a kernel", row["transfer_ns_median"], None)


def check(run, expected, run_dir, analysis):
    """(lines about what differs, a line about what was compared)"""
    bad, tolerance = check_timeline(run.d, expected, run_dir)
    bad += check_analysis(run, expected, analysis)
    return bad, (f"{len(bad)} differences over {len(expected['step_ranks'])} step cells and {len(expected['collectives'])} "
                 f"collectives (tolerance {tolerance} ns)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    with open(args.spec) as f:
        run = simulate.Run(simulate.parse(f.read(), args.set))
    json.dump(expect(run, activities_of(run)), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    sys.exit(main())
