"""What the tables must say about a trace of torch.profiler, worked out from its JSON alone.

Shares no code and no shortcut with Lockstep: plain loops over the events. Times are
integers of ns, cut (not rounded) after the third digit behind the point.

HTA's own results are recomputed with its rounding and its window to prove that the
oracle and HTA look at the same thing (HolisticTraceAnalysis f4d0062).
"""

import collections
import decimal
import gzip
import json
import math
import re

GPU = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver")


def ns(value):
    return int(decimal.Decimal(value) * 1000)


class Trace:
    def __init__(self, path):
        with gzip.open(path) as file:
            data = json.load(file, parse_float=decimal.Decimal)
        self.rank = int(data.get("distributedInfo", {}).get("rank", 0))
        self.raw = [e for e in data["traceEvents"] if e.get("ph") == "X" and e.get("cat") not in (None, "Trace")]
        self.instants = [e for e in data["traceEvents"] if e.get("ph") == "i"]
        self.events = []
        for order, e in enumerate(self.raw):
            args = e.get("args") or {}
            self.events.append({"name": e["name"], "cat": e["cat"], "begin": ns(e["ts"]),
                                "end": ns(e["ts"]) + ns(e["dur"]), "thread": (e["pid"], e["tid"]), "order": order,
                                "correlation": int(args.get("correlation", 0) or 0), "args": args, "raw": e})

    def of(self, *cats):
        return [e for e in self.events if e["cat"] in cats]

    def gpu(self):
        return self.of(*GPU)

    def launches(self):
        """Correlation -> the host call; launching calls before others."""
        found = {}
        for call in self.of(*RUNTIME):
            if not call["correlation"]:
                continue
            launching = bool(re.search("Launch|Memcpy|Memset", call["name"]))
            key = (not launching, call["begin"], call["order"])
            if call["correlation"] not in found or key < found[call["correlation"]][0]:
                found[call["correlation"]] = (key, call)
        return {correlation: call for correlation, (_, call) in found.items()}


def union(intervals):
    merged = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def hta_class(name):
    """First hit wins."""
    if re.match(r"^nccl.*|^hip|^hccl|.*ncclKernel.*", name):
        return 1
    if re.match(r"^(hip)?Memcpy|^(hip)?Memset|^dma", name):
        return 2
    if not re.match(r"^nccl|.*Memcpy|.*Memset|.*dma|^.*Sync|^Stream Wait Event|cuda.*LaunchKernel|^runFunction|^hip|"
                    r"^job_exe|^packet|^pe_exe|^cpum_exe_subgraph|^hccl|^collective_subgraph_execution", name):
        return 0
    return 3


NAMES = ["compute", "communication", "memory"]


def is_step(e):
    """To HTA whatever has no stream is the host's: the step's mark on the GPU, too, where it has none."""
    return e["name"].startswith("ProfilerStep") and "stream" not in e["args"]


def combinations(sets):
    """Exclusive time of each combination of three interval lists."""
    edges = []
    for bit, intervals in enumerate(sets):
        for begin, end in union(intervals):
            edges += [(begin, 1 << bit), (end, -(1 << bit))]
    times = collections.Counter()
    state, last = 0, 0
    for at, change in sorted(edges):
        if state:
            times[" + ".join(NAMES[b] for b in range(3) if state >> b & 1)] += at - last
        state, last = state + change, at
    return {name: time for name, time in times.items() if time}


def htas_window(traces):
    """Per trace the GPU events that HTA keeps: with several steps those launched before the last one."""
    several = len({e["name"] for t in traces for e in t.events if is_step(e)}) > 1
    for trace in traces:
        if not several:
            yield trace.gpu()
            continue
        last = max(e["begin"] for e in trace.events if is_step(e))
        kept = {e["correlation"] for e in trace.events
                if "stream" not in e["args"] and e["correlation"] and e["begin"] < last}
        yield [e for e in trace.gpu() if e["correlation"] in kept]


def breakdown(events):
    sets = [[], [], []]
    for e in events:
        kind = hta_class(e["name"])
        if kind < 3:
            sets[kind].append((e["begin"], e["end"]))
    return combinations(sets)


def hta_merge(intervals):
    """HTA's: touching intervals join, those of no or negative duration stay."""
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def hta_combinations(sets):
    """HTA's sweep adds and takes away the classes' bits as numbers. An event that its rounding
    made end before it began takes its class away for 1 us: compute from communication gives
    compute (2 - 1 = 1)."""
    edges = sorted((at, change) for bit, intervals in enumerate(sets) for begin, end in hta_merge(intervals)
                   for at, change in ((begin, 1 << bit), (end, -(1 << bit))))
    times = collections.Counter()
    state = 0
    for (at, change), (after, _) in zip(edges, edges[1:]):
        state += change
        if 0 < state < 8:
            times[" + ".join(NAMES[b] for b in range(3) if state >> b & 1)] += after - at
    return times


def hta_breakdown(traces):
    """HTA's own: us, ts up and end down where they are no integers, last of several steps dropped."""
    steps = {e["name"] for t in traces for e in t.events if is_step(e)}
    total = collections.Counter()
    for trace in traces:
        floats = any(isinstance(e["raw"]["ts"], decimal.Decimal) for e in trace.events)
        def times(e):
            ts, dur = e["raw"]["ts"], e["raw"]["dur"]
            if not floats:
                return ts, ts + dur
            # Doubles, as HTA has them.
            ts, dur = float(ts), float(dur)
            return math.ceil(ts), math.floor(ts + dur)
        gpu = trace.gpu()
        if len(steps) > 1:
            last = max(times(e)[0] for e in trace.events if is_step(e))
            kept = {e["correlation"] for e in trace.events
                    if "stream" not in e["args"] and e["correlation"] and times(e)[0] < last}
            gpu = [e for e in gpu if e["correlation"] in kept]
        sets = [[], [], []]
        for e in gpu:
            kind = hta_class(e["name"])
            if kind < 3:
                sets[kind].append(times(e))
        total.update(hta_combinations(sets))
    return {name: time for name, time in total.items() if time}


def kernels(trace):
    found = collections.defaultdict(list)
    for e in trace.of("kernel"):
        found[e["name"]].append(e["end"] - e["begin"])
    return {name: {"count": len(d), "total_ns": sum(d), "min_ns": min(d), "max_ns": max(d),
                   "p50_ns": sorted(d)[(len(d) - 1) // 2], "short_count": sum(x < 10000 for x in d)}
            for name, d in found.items()}


def nest(ops):
    """Sets "parent" of each: the innermost that is open when it begins."""
    threads = collections.defaultdict(list)
    for op in ops:
        if op["end"] > op["begin"]:
            threads[op["thread"]].append(op)
        op["parent"] = None
    for own in threads.values():
        own.sort(key=lambda op: (op["begin"], op["begin"] - op["end"], op["order"]))
        open_ = []
        for op in own:
            open_ = [o for o in open_ if o["end"] > op["begin"]]
            op["parent"] = open_[-1] if open_ else None
            open_.append(op)
    return threads


def innermost(threads, call):
    best = None
    for op in threads.get(call["thread"], ()):
        if op["begin"] > call["begin"]:
            break
        if op["end"] > call["begin"]:
            best = op
    return best


class Launched:
    """Operators with what they launched themselves: op["work"], a list of GPU events."""

    def __init__(self, trace):
        self.ops = trace.of("cpu_op")
        threads = nest(self.ops)
        launches = trace.launches()
        self.outside, self.no_launch = [], []
        for op in self.ops:
            op["work"], op["covered"], op["self"] = [], None, op["end"] - op["begin"]
        # The innermost operator of each call, by a walk over each thread.
        calls = collections.defaultdict(list)
        for e in trace.gpu():
            call = launches.get(e["correlation"])
            if call is None:
                self.no_launch.append(e)
            else:
                calls[call["thread"]].append((call["begin"], e))
        for thread, work in calls.items():
            work.sort(key=lambda w: w[0])
            at, open_ = 0, []
            own = threads.get(thread, [])
            for begin, e in work:
                while at < len(own) and own[at]["begin"] <= begin:
                    open_.append(own[at])
                    at += 1
                open_ = [o for o in open_ if o["end"] > begin]
                (open_[-1]["work"] if open_ else self.outside).append(e)
        for own in threads.values():
            for op in own:
                parent = op["parent"]
                if parent is None:
                    continue
                begin = op["begin"] if parent["covered"] is None else max(op["begin"], parent["covered"])
                end = min(op["end"], parent["end"])
                if end > begin:
                    parent["self"] -= end - begin
                parent["covered"] = end if parent["covered"] is None else max(parent["covered"], end)


def ancestors(op):
    while op is not None:
        yield op
        op = op["parent"]


def ops(trace):
    launched = Launched(trace)
    found = collections.defaultdict(collections.Counter)
    for op in launched.ops:
        row = found[op["name"]]
        row["calls"] += 1
        row["cpu_self_ns"] += op["self"]
        if all(a["name"] != op["name"] for a in ancestors(op["parent"])):
            row["cpu_total_ns"] += op["end"] - op["begin"]
        own = sum(e["end"] - e["begin"] for e in op["work"])
        row["gpu_self_ns"] += own
        for name in {a["name"] for a in ancestors(op)}:
            found[name]["gpu_total_ns"] += own
            found[name]["kernels"] += sum(e["cat"] == "kernel" for e in op["work"])
    return found, sum(e["end"] - e["begin"] for e in launched.outside), \
        sum(e["end"] - e["begin"] for e in launched.no_launch)


def sequences(trace, text, least):
    launched = Launched(trace)
    work = collections.defaultdict(list)
    by_id = {}
    for op in launched.ops:
        matching = [a for a in ancestors(op) if text in a["name"]]
        if matching:
            outer = matching[-1]
            by_id[id(outer)] = outer
            work[id(outer)] += op["work"]
    found = {}
    for events in work.values():
        if len(events) < least:
            continue
        events.sort(key=lambda e: (e["begin"], e["end"], e["cat"] != "kernel", e["order"]))
        key = " -> ".join(copy_name(e) for e in events)
        count, total = found.get(key, (0, 0))
        found[key] = (count + 1, total + sum(e["end"] - e["begin"] for e in events))
    return found


def copy_name(event):
    if event["cat"] == "kernel":
        return event["name"]
    if event["cat"] == "gpu_memset":
        return "Memset"
    return re.match(r"Memcpy( [A-Z]to[A-Z])?", event["name"]).group(0)


def annotations(trace):
    found = {}
    for e in trace.of("user_annotation"):
        name = re.sub(r"^ProfilerStep#\d+$", "ProfilerStep#N", e["name"])
        count, total = found.get(name, (0, 0))
        found[name] = (count + 1, total + e["end"] - e["begin"])
    return found


def peak_memory(trace):
    found = {}
    for e in trace.instants:
        if e["name"] != "[memory]":
            continue
        args = e["args"]
        device = "host" if args["Device Type"] == 0 else int(args["Device Id"])
        peak, largest, count = found.get(device, (0, 0, 0))
        found[device] = (max(peak, args.get("Total Allocated", 0)), max(largest, args["Bytes"]),
                         count + (args["Bytes"] >= 0))
    return found
