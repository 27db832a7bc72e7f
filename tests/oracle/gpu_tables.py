#!/usr/bin/env python3
"""Recomputes the GPU tables of `lockstep analyze --table` from the rank files' columns.

  gpu_tables.py LOCKSTEP RUN

idle, idle-gaps, launches, launch-bound, queue, copies, syncs, critical-path of every
rank, written again after docs/tables.md, slowly and plainly: sets by sweeping,
neighbours by looking at all, the critical path as longest path of an explicit graph.
Every number must be the same.
"""

import argparse
import bisect
import collections
import heapq
import itertools
import json
import math
import os
import subprocess
import sys

import h5py
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import rank_tables  # noqa: E402
import idle_parts  # noqa: E402
import numpy as np

NONE = 0xFFFFFFFF
SLACK = 2_000
PROMPT = 30_000
RETURNS = 30_000  # A waiting call returns within this time of what it waited for.
MOST_PATH_OPS = 1_500
HTA_CALLS = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
COPY_KINDS = ["copy", "copy host to device", "copy device to host", "copy on device", "copy peer", "copy host to host",
              "memset"]


# ---- Sets of time ----

def union(intervals):
    out = []
    for begin, end in sorted((b, e) for b, e in intervals if b < e):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return [(b, e) for b, e in out]


class Covered:
    """How much of any time sorted intervals cover that share none."""

    def __init__(self, intervals):
        self.intervals, self.begins = intervals, [b for b, _ in intervals]
        self.before = [0, *itertools.accumulate(e - b for b, e in intervals)]

    def until(self, time):
        at = bisect.bisect_right(self.begins, time)
        return self.before[at] - max(0, self.intervals[at - 1][1] - time) if at else 0

    def within(self, begin, end):
        return max(0, self.until(end) - self.until(begin))


def minus(a, b):
    out = []
    for begin, end in a:
        for hole_begin, hole_end in b:
            if hole_end <= begin or hole_begin >= end:
                continue
            if hole_begin > begin:
                out.append((begin, hole_begin))
            begin = max(begin, hole_end)
        if begin < end:
            out.append((begin, end))
    return out


# ---- One rank's events ----

Op = collections.namedtuple("Op", "begin end copy row api device context stream cls name busy")
Call = collections.namedtuple("Call", "begin end thread name what row")
Range = collections.namedtuple("Range", "begin end thread name source category row")
Blocking = collections.namedtuple("Blocking", "begin end api sync copy thread")


def what_call(name):
    base = name.split("_v")[0] if name.rsplit("_v", 1)[-1].isdigit() else name
    for suffix in ("_ptsz", "_ptds", "_spt"):
        base = base[:-len(suffix)] if base.endswith(suffix) else base
    if base.endswith("GraphLaunch"):
        return "graph"
    if "Graph" in base[:9]:
        return "other"
    if "Launch" in base and ("Kernel" in base or base.startswith("cuLaunch")):
        return "launch"
    if "Memcpy" in base or "Memset" in base:
        return "copy" if "Async" in base or "Memset" in base or "Peer" in base else "blocking copy"
    if base.endswith("Synchronize") or base in ("cudaFree", "cuMemFree", "hipFree"):
        return "sync"
    if any(word in base for word in ("Malloc", "Free", "MemAlloc", "HostAlloc", "HostRegister", "HostUnregister")):
        return "memory"
    return "other"


class Rank:
    def __init__(self, path, hta=False):
        with rank_tables.open_file(path, "r") as f:
            t = {name: {column: values[:].tolist() for column, values in f[name].items()}
                 for name in ("strings", "string_bytes", "threads", "kernels", "copies", "sync", "api", "ranges",
                              "mpi_calls", "collectives", "p2p", "steps", "overheads") if name in f}
        blob = bytes(t["string_bytes"]["value"])
        text = [blob[o:o + n].decode() for o, n in zip(t["strings"]["offset_bytes"], t["strings"]["length_bytes"])]
        text_of = lambda i: text[i] if i < len(text) else ""
        api = t["api"]
        self.calls = [Call(b, b + d, th, text_of(n), what_call(text_of(n)), i)
                      for i, (b, d, th, n) in enumerate(zip(api["begin_ns"], api["duration_ns"], api["thread"], api["name"]))]
        launcher = {}
        for call, correlation in zip(self.calls, api["correlation"]):
            if correlation == 0:
                continue
            key = (call.what in ("other", "sync", "memory"), call.begin, call.row)
            if correlation not in launcher or key < launcher[correlation][0]:
                launcher[correlation] = (key, call)
        find = lambda correlation: launcher[correlation][1] if correlation in launcher else None
        carried = set(t["collectives"]["kernel"])
        self.ops = []
        k = t["kernels"]
        for i in range(len(k["begin_ns"])):
            name = text_of(k["name"][i])
            comm = i in carried or name.startswith("nccl") or "ncclKernel" in name or "ncclDevKernel" in name
            cls = "sync" if k["work"][i] == 2 else "communication" if comm or k["work"][i] == 1 else "compute"
            self.ops.append(Op(k["begin_ns"][i], k["begin_ns"][i] + k["duration_ns"][i], False, i,
                               find(k["correlation"][i]), k["device"][i], k["context"][i], k["stream"][i], cls, name,
                               cls != "sync"))
        c = t["copies"]
        for i in range(len(c["begin_ns"])):
            self.ops.append(Op(c["begin_ns"][i], c["begin_ns"][i] + c["duration_ns"][i], True, i,
                               find(c["correlation"][i]), c["device"][i], c["context"][i], c["stream"][i], "copy",
                               COPY_KINDS[c["kind"][i]], True))
        self.copies = c
        self.ops.sort(key=lambda op: (op.begin, op.end, op.copy, op.row))
        r = t["ranges"]
        self.ranges = [Range(b, b + d, th, text_of(n), s, cat, i) for i, (b, d, th, n, s, cat, kind) in
                       enumerate(zip(r["begin_ns"], r["duration_ns"], r["thread"], r["name"], r["source"],
                                     r["category"], r["kind"])) if kind != 2 and d > 0]
        m = t["mpi_calls"]
        self.mpi = list(zip(m["thread"], m["begin_ns"], [b + d for b, d in zip(m["begin_ns"], m["duration_ns"])]))
        training = [th for th, flag in zip(t["threads"]["thread"], t["threads"]["training"]) if flag]
        self.training = training[0] if training else NONE
        self.sync = t["sync"]
        self.step_begins = list(t["steps"]["begin_ns"])
        o = t["overheads"]
        self.loading = [(th, b, b + d) for th, b, d, kind in zip(o["thread"], o["begin_ns"], o["duration_ns"], o["kind"])
                        if th != NONE and kind in (1, 5)]
        self.order = {"kernels": k["correlation"], "copies": c["correlation"]}
        on_host = any(mode != 3 for table in ("collectives", "p2p") for mode in t[table]["mode"])
        self.awaited = [] if on_host else self.awaited_operations()
        self.blocking = self.blocking_calls(find)
        self.waits = Waits(self)

    def blocking_calls(self, find):
        copy_of, pageable, sync_of, found = {}, set(), {}, []
        for op in self.ops:
            if op.copy and op.api:
                copy_of[op.api.row] = max(copy_of.get(op.api.row, -1), op.row)
                if self.copies["kind"][op.row] == 2 and self.copies["host_memory"][op.row] == 1:
                    pageable.add(op.api.row)
        s = self.sync
        for i in range(len(s["begin_ns"])):
            if s["kind"][i] in (2, 5):
                continue
            call = find(s["correlation"][i])
            if call:
                sync_of[call.row] = i
            else:
                found.append(Blocking(s["begin_ns"][i], s["begin_ns"][i] + s["duration_ns"][i], None, i, None, NONE))
        for call in self.calls:
            copies = call.what == "blocking copy" or (call.what == "copy" and call.row in pageable)
            if copies or call.what == "sync" or call.row in sync_of:
                found.append(Blocking(call.begin, call.end, call, sync_of.get(call.row),
                                      copy_of.get(call.row) if copies else None, call.thread))
        return sorted(found, key=lambda b: b.begin)

    def devices(self):
        return sorted({op.device for op in self.ops})

    def awaited_operations(self):
        """When operations that the host carries out are in flight and the rank runs no operator."""
        carried = lambda r: r.name.startswith(("gloo:", "mpi:", "ucc:")) and r.name[r.name.index(":"):][:2] != "::"
        call = lambda r: r.name.startswith("c10d::") or r.name == "record_param_comms"
        threads = {self.training} | {r.thread for r in self.ranges if r.category == 3 and r.source == 3}
        waits = lambda r: any(o.thread == r.thread and r.begin <= o.begin < r.end for o in self.ranges if carried(o) or call(o))
        return minus(union([(r.begin, r.end) for r in self.ranges if carried(r)]),
                     union([(r.begin, r.end) for r in self.ranges if r.thread in threads and r.source == 3 and not carried(r) and
                            not call(r) and "c10d_functional::" not in r.name and not waits(r)]))


# ---- Waits of streams ----

class Waits:
    """What streams, and the host, waited for, where rows of sync tell: by the order of correlations alone."""

    def __init__(self, rank):
        s = rank.sync
        rows = range(len(s["begin_ns"]))
        if "record_correlation" not in s:
            s = dict(s, record_correlation=[0 for _ in rows], record_stream=[NONE for _ in rows])
        self.s = s
        self.ops = [op for op in rank.ops if op.busy]
        self.place = {id(op): i for i, op in enumerate(rank.ops)}
        correlation = lambda op: rank.order["copies" if op.copy else "kernels"][op.row]
        self.on = collections.defaultdict(list)  # Of a stream: (correlation, operation) in order.
        for op in self.ops:
            if correlation(op):
                self.on[op.device, op.context, op.stream].append((correlation(op), self.place[id(op)], op))
        for line in self.on.values():
            line.sort(key=lambda entry: entry[:2])
        self.at = {id(entry[2]): n for line in self.on.values() for n, entry in enumerate(line)}
        self.streams = sorted({(op.device, op.context, op.stream) for op in rank.ops})
        self.recorded = {c: i for i, c in reversed(list(enumerate(s["correlation"]))) if s["kind"][i] == 5 and c}
        has_record = lambda i: (0 < s["record_correlation"][i] <= s["correlation"][i] and s["record_stream"][i] != NONE)
        self.known = {i for i in rows if s["kind"][i] in (1, 2) and s["correlation"][i] and has_record(i)}
        self.told = any(s["kind"][i] == 2 for i in self.known)
        self.waiting = collections.defaultdict(list)  # Of a stream: (correlation, row) of its waits, in order.
        for i in rows:
            if s["kind"][i] == 2 and s["correlation"][i] and s["stream"][i] != NONE:
                bisect.insort(self.waiting[s["device"][i], s["context"][i], s["stream"][i]], (s["correlation"][i], i))
        self.done_cache = {}

    def later(self, ops):
        ops = [op for op in ops if op is not None]
        return max(ops, key=lambda op: (op.end, self.place[id(op)])) if ops else None

    def record_stream(self, i):
        s = self.s
        if s["record_correlation"][i] in self.recorded:
            row = self.recorded[s["record_correlation"][i]]
            return s["device"][row], s["context"][row], s["stream"][row]
        same = (s["device"][i], s["context"][i], s["record_stream"][i])
        return same if same in self.streams else next((st for st in self.streams if st[2] == same[2]), same)

    def done(self, stream, correlation):
        """Of what was asked of the stream before that: what ends last, what it waits for included."""
        key = (stream, correlation)
        if key not in self.done_cache:
            waits = self.waiting[stream][:bisect.bisect_left(self.waiting[stream], (correlation,))]
            asked = self.on[stream][:bisect.bisect_left(self.on[stream], (correlation,))]
            self.done_cache[key] = self.later([op for _, _, op in asked] + [self.released(i) for _, i in waits])
        return self.done_cache[key]

    def released(self, i):
        return self.done(self.record_stream(i), self.s["record_correlation"][i]) if i in self.known else None

    def held(self, op):
        """(the operation that held it or None, the wait's row, something is unknown)"""
        stream = (op.device, op.context, op.stream)
        line = self.on[stream]
        at = self.at.get(id(op))
        if at is None:
            return None, None, False
        correlation, before = line[at][0], line[at - 1][0] if at else -1
        waiting = self.waiting[stream]
        waits = [i for _, i in waiting[bisect.bisect_left(waiting, (before + 1,)):bisect.bisect_left(waiting, (correlation + 1,))]]
        op, row = None, None
        for i in waits:
            released = self.released(i)
            if released is not None and released is not op and self.later([op, released]) is released:
                op, row = released, i
        return op, row, any(i not in self.known for i in waits)

    def host(self, i):
        """(known, what a row of the host's waiting waited for)"""
        s = self.s
        if s["kind"][i] == 1 and i in self.known:
            return True, self.released(i)
        if s["kind"][i] == 3 and self.told and s["stream"][i] != NONE and s["correlation"][i]:
            own = (s["device"][i], s["context"][i], s["stream"][i])
            if own not in self.streams:
                own = next((st for st in self.streams if (st[0], st[2]) == (own[0], own[2])), own)
            waits = [w for c, w in self.waiting[own] if c <= s["correlation"][i]]
            earlier = [op for c, _, op in self.on[own] if c < s["correlation"][i]]
            return True, self.later(earlier + [self.released(w) for w in waits])
        return False, None


def stream_waits(rank, inside):
    """Rows of the table: (waiting, recorded, what it waited for) -> waits that held, ns, the longest."""
    w, sums = rank.waits, collections.defaultdict(list)
    for op in w.ops:
        if not inside(op.begin):
            continue
        held, row, _ = w.held(op)
        if held is None or held.end > op.begin:
            continue
        line = w.on[op.device, op.context, op.stream]
        at = w.at[id(op)]
        free = max((o.end for _, _, o in line[:at]), default=None)
        ready = [t for t in (free, op.api.end if op.api else None) if t is not None]
        if ready and held.end > max(ready):
            sums[op.device, op.stream, w.record_stream(row)[2], held.cls].append(held.end - max(ready))
    return sums


# ---- The critical path ----

class Graph:
    """Points in time, edges between them; the heaviest way from the window's begin to its end."""

    def __init__(self, rank, window):
        self.rank, (self.w0, self.w1) = rank, window
        self.all_ops = [op for op in rank.ops if op.busy]
        self.threads = sorted({op.api.thread for op in rank.ops if op.api} |
                              {b.thread for b in rank.blocking if b.thread != NONE})
        self.releases, blocked = [], collections.defaultdict(list)
        for call in rank.blocking:
            if call.thread not in self.threads:
                continue
            op = self.waited_for(call)
            if op is None:
                if call.end - call.begin > RETURNS:
                    blocked[call.thread].append((call.begin, call.end))
                continue
            released = min(op.end, call.end)
            blocked[call.thread].append((call.begin, call.end if call.end - released > RETURNS else released))
            self.releases.append((released, call.thread, op))
        self.covered, self.blocked, self.communicates, self.input = {}, {}, {}, {}
        for thread in self.threads:
            self.blocked[thread] = union(blocked[thread])
            mpi = [(b, e) for th, b, e in rank.mpi if th == thread]
            work = ([(r.begin, r.end) for r in rank.ranges if r.thread == thread and r.source == 3] +
                    [(c.begin, c.end) for c in rank.calls if c.thread == thread] + mpi)
            self.covered[thread] = minus(union(work), self.blocked[thread])
            self.communicates[thread] = union(mpi + rank.awaited)
            self.input[thread] = union([(r.begin, r.end) for r in rank.ranges if r.thread == thread and r.category == 1])
        self.busy = {th: Covered(self.covered[th]) for th in self.threads}
        self.somebody = Covered(union([i for th in self.threads for i in self.covered[th] + self.blocked[th]]))

    def waited_for(self, call):
        def possible(op):
            return (op.end > call.begin and op.end <= call.end + SLACK and op.begin < min(op.end, call.end))
        if call.copy is not None:
            own = [op for op in self.all_ops if op.copy and op.row == call.copy]
            if own and own[0].end > call.begin and own[0].end <= call.end + SLACK and own[0].begin < call.end:
                return own[0]
        if call.sync is not None:
            known, op = self.rank.waits.host(call.sync)
            if known:
                return op if op is not None and op.end > call.begin and op.begin < min(op.end, call.end) else None
        sync = self.rank.sync
        one = call.sync is not None and sync["kind"][call.sync] == 3 and sync["stream"][call.sync] != NONE
        choice = [(op.end, i) for i, op in enumerate(self.all_ops)
                  if possible(op) and (op.api is None or op.api.begin < call.begin) and
                  (not one or (op.stream, op.device) == (sync["stream"][call.sync], sync["device"][call.sync]))]
        return self.all_ops[max(choice)[1]] if choice else None

    def host_weight(self, thread, begin, end):
        return self.busy[thread].within(begin, end) + (end - begin) - self.somebody.within(begin, end)

    def hand_overs(self):
        stretches = [(b, e, th, previous) for th in self.threads
                     for (b, e), previous in self.with_previous(union(self.covered[th] + self.blocked[th]))]
        out, ends = [], sorted((e, th) for _, e, th, _ in stretches)
        for begin, _, thread, previous in stretches:
            at = bisect.bisect_right(ends, (begin, NONE)) - 1
            while at >= 0 and ends[at][0] > previous and ends[at][1] == thread:
                at -= 1
            if at >= 0 and ends[at][0] > previous:
                out.append((ends[at], (begin, thread)))
        return out

    @staticmethod
    def with_previous(intervals):
        return zip(intervals, [-2**62] + [e for _, e in intervals])

    def solve(self):
        w0, w1 = self.w0, self.w1
        ops = [op for op in self.all_ops if op.begin <= w1 and (op.begin >= w0 or op.end > w0)]
        begin_of = lambda op: max(op.begin, w0)
        end_of = lambda op: min(op.end, w1)
        order = {id(op): i for i, op in enumerate(ops)}
        hosts = []  # (time, kind, thread, what)
        for time, thread, op in self.releases:
            hosts.append((time, 0, thread, op))
        for pair, (giver, taker) in enumerate(self.hand_overs()):
            hosts.append((giver[0], 1, giver[1], pair))
            hosts.append((taker[0], 2, taker[1], pair))
        launched = {}
        for op in ops:
            if op.api:
                launched[op.api.row] = op.api
        for call in launched.values():
            hosts.append((call.begin, 3, call.thread, call.row))
        hosts = [h for h in hosts if w0 <= h[0] <= w1]
        points = [((h[0], 0, h[1], h[2]), h) for h in hosts]
        points += [((op.begin, 1, order[id(op)], 0), op) for op in ops if op.begin >= w0]
        points.sort(key=lambda p: p[0])
        best, came = {}, {}  # Of ("op", index) at its begin, ("host", n); came: (edge, from, counted)
        for op in ops:
            if op.begin < w0:
                best["op", order[id(op)]], came["op", order[id(op)]] = 0, ("source", None, False)
        at_end = lambda op: best["op", order[id(op)]] + end_of(op) - begin_of(op)
        chain, givers, launch_node, sink = {}, {}, {}, None
        earlier, last = set(), {}
        running = [(op.end, i) for i, op in enumerate(ops) if op.begin < w0]
        heapq.heapify(running)
        for n, (_, point) in enumerate(points):
            if isinstance(point, Op):
                i, begin = order[id(point)], point.begin
                launch = point.api.begin if point.api else -2**62
                offers = []
                # Of what began before it, all that has ended by now; one candidate per stream: its last one.
                while running and running[0][0] <= begin:
                    ended = ops[heapq.heappop(running)[1]]
                    earlier.add(id(ended))
                    last[ended.device, ended.context, ended.stream] = ended
                heapq.heappush(running, (point.end, i))
                own = last.get((point.device, point.context, point.stream))
                ready = own.end if own else -2**62
                prompt = lambda end: launch < end and begin - end <= PROMPT
                if own:
                    offers.append((at_end(own), own.end, "stream", ("op", order[id(own)]), prompt(own.end)))
                launch_of = lambda op: (op.api.begin, op.api.row) if op.api else (-2**62, 0)
                held, _, unknown = self.rank.waits.held(point)
                guess = not self.rank.waits.told or unknown
                cross = [op for op in last.values() if op is not own and op.device == point.device and
                         (op.context, op.stream) != (point.context, point.stream) and op.end > (own.end if own else w0)
                         and launch_of(op) <= launch_of(point)
                         and (guess or (op.api is not None and op.api is point.api))]
                if not guess and held is not None and id(held) in earlier and held.end > (own.end if own else w0):
                    cross.append(held)
                if cross:
                    cross = max(cross, key=lambda op: (op.end, order[id(op)]))
                    ready = cross.end
                    offers.append((at_end(cross), cross.end, "cross", ("op", order[id(cross)]), prompt(cross.end)))
                if point.api:
                    if w0 <= launch <= begin:
                        counts = launch >= ready and begin - point.api.end <= PROMPT
                        node = launch_node[point.api.row]
                        offers.append((best[node], launch, "launch", node, counts))
                choice = (0, -2**62, "source", None, False)
                for weight, since, edge, source, counts in offers:
                    weight += begin - since if counts else 0
                    if (weight, since) > choice[:2]:
                        choice = (weight, since, edge, source, counts)
                best["op", i], came["op", i] = choice[0], choice[2:]
                if begin == w1:
                    sink = ("op", i)
                    break
                continue
            time, kind, thread, what = point
            previous, since = chain.get(thread, (None, w0))
            choice = ((best[previous] if previous else 0) + self.host_weight(thread, since, time), since,
                      "host" if previous else "source", previous, True)
            offer = None
            if kind == 0 and id(what) in order and begin_of(what) < time and what.end > w0:
                since = begin_of(what) if what.end > time else time
                offer = (best["op", order[id(what)]] + time - begin_of(what), since, "cut" if what.end > time else "release",
                         ("op", order[id(what)]), True)
            elif kind == 2 and what in givers:
                since, node = givers[what]
                offer = (best[node] + (time - since) - self.somebody.within(since, time), since, "host", node, True)
            if offer and offer[:2] > choice[:2]:
                choice = offer
            node = ("host", n, time, thread)
            best[node], came[node] = choice[0], choice[2:]
            chain[thread] = (node, time)
            if kind == 1:
                givers[what] = (time, node)
            if kind == 3:
                launch_node[what] = node
        return self.trace(ops, sink, best, came, begin_of, end_of, at_end, order)

    def trace(self, ops, sink, best, came, begin_of, end_of, at_end, order):
        sums, now = collections.Counter(), self.w1

        def spend(category, begin):
            nonlocal now
            sums[category] += max(0, now - begin)
            now = min(now, begin)

        def spend_host(thread, begin):
            nonlocal now
            if begin >= now:
                return
            piece = [(begin, now)]
            for name, sets in (("sync", self.blocked), ("communication", self.communicates), ("data_loading", self.input)):
                rest = minus(piece, sets[thread])
                sums[name] += sum(e - b for b, e in piece) - sum(e - b for b, e in rest)
                piece = rest
            sums["cpu"] += sum(e - b for b, e in piece)
            now = begin

        if sink is None:
            running = [op for op in ops if op.begin < self.w1]
            if not running:
                weights = {th: self.host_weight(th, self.w0, self.w1) for th in self.threads}
                thread = max(self.threads, key=lambda th: (weights[th], -th)) if self.threads else None
                if thread is None:
                    spend("other", self.w0)
                    return 0, sums
                spend_host(thread, self.w0)
                return weights[thread], sums
            last = max(running, key=lambda op: (end_of(op), at_end(op), order[id(op)]))
            explained = at_end(last)
            spend("other", end_of(last))
            spend(last.cls, begin_of(last))
            at = ("op", order[id(last)])
        else:
            at, explained = sink, best[sink]
        while at is not None:
            edge, source, counts = came[at]
            if edge in ("stream", "cross"):
                op = ops[source[1]]
                api = ops[at[1]].api
                queued = api is not None and api.begin < end_of(op)
                spend("kernel_gap" if counts else "launch" if queued else "other", end_of(op))
                spend(op.cls, begin_of(op))
            elif edge == "launch":
                spend("launch", source[2])
            elif edge in ("release", "cut"):
                spend(ops[source[1]].cls, begin_of(ops[source[1]]))
            elif edge == "host":
                spend_host(at[3], source[2])
            elif at[0] == "host":
                spend_host(at[3], self.w0)
            else:
                spend("other", self.w0)
            at = source
        assert sum(sums.values()) == self.w1 - self.w0
        return explained, sums


# ---- Comparison ----

class Checker:
    def __init__(self, lockstep, run):
        self.lockstep, self.run, self.bad, self.compared, self.tables, self.of_rank = lockstep, run, [], 0, {}, {}
        with h5py.File(os.path.join(run, "timeline.h5"), "r") as f:
            columns = lambda name: {c: values[:].tolist() for c, values in f[name].items()}
            totals, steps, ranks, meta = columns("rank_totals"), columns("step_ranks"), columns("ranks"), columns("meta")
            strings, blob = columns("strings"), bytes(f["string_bytes"]["value"][:].tolist())
        text = [blob[o:o + n].decode() for o, n in zip(strings["offset_bytes"], strings["length_bytes"])]
        self.totals = {r: i for i, r in enumerate(totals["rank"])}
        meta = {text[k]: text[v] for k, v in zip(meta["key"], meta["value"])}
        self.window = {r: (b, e) for r, b, e in zip(totals["rank"], totals["begin_ns"], totals["end_ns"])}
        whole = dict(self.window)
        if meta.get("window") == "gpu_events":  # Host work of the first and the last step, beyond the totals.
            for r, b, e, complete in zip(steps["rank"], steps["begin_ns"], steps["end_ns"], steps["complete"]):
                if complete:
                    self.window[r] = (min(b, self.window[r][0]), max(e, self.window[r][1]))
        # No work of the GPU is in it.
        self.idle = {r: idle + self.window[r][1] - self.window[r][0] - (whole[r][1] - whole[r][0])
                     for r, idle in zip(totals["rank"], totals["idle_ns"])}
        self.steps = collections.defaultdict(list)
        for r, i, b, e, complete in zip(steps["rank"], steps["index"], steps["begin_ns"], steps["end_ns"], steps["complete"]):
            if complete and b >= self.window[r][0] and e <= self.window[r][1]:
                self.steps[r].append((i, b, e))
        self.files = {r: os.path.join(run, text[f]) for r, f in zip(ranks["rank"], ranks["file"]) if f < len(text)}

    def table(self, name, rank):
        self.all_rows(name)
        return self.of_rank[name][rank]

    def all_rows(self, name):
        if name not in self.tables:
            done = subprocess.run([self.lockstep, "analyze", self.run, "--table", name, "--rank", "all", "--top", "0",
                                   "--json", "-"], capture_output=True, text=True)
            if done.returncode not in (0, 3):
                sys.exit(f"--table {name}: exit {done.returncode}\n{done.stderr}")
            table = json.loads(done.stdout)
            columns = [c["name"] for c in table["columns"]]
            self.tables[name] = [dict(zip(columns, row)) for row in table["rows"]]
            self.of_rank[name] = collections.defaultdict(list)
            for row in self.tables[name]:
                self.of_rank[name][row["rank"]].append(row)
        return self.tables[name]

    def same(self, what, got, want):
        self.compared += 1
        close = got == want
        if isinstance(want, float) and isinstance(got, (int, float)):
            close = math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-9)
        if not close:
            self.bad.append(f"{what}: {got}, oracle {want}")

    def check_rank(self, number):
        rank = Rank(self.files[number])
        if not rank.ops:
            return
        windows = [self.window[number]]
        where = f"rank {number} "
        self.check_idle(where, number, rank, windows)
        self.check_launches(where, number, rank)
        self.check_queue(where, number, rank, windows[0])
        self.check_copies(where, number, rank, windows[0])
        self.check_stream_waits(where, number, rank, windows[0])
        # Longest paths of explicit graphs: every operation looks at all before it.
        if len(rank.ops) <= MOST_PATH_OPS:
            self.check_path(where, number, rank, windows[0])

    def check_idle(self, where, number, rank, windows):
        idle_parts.check(self, where, number, rank, windows)

    def describe(self, where, row, values, unit=1, prefix="", suffix="_ns"):
        values = np.array(values, dtype=np.int64)
        name = lambda what: prefix + what + suffix
        self.same(where + "mean", row[name("mean")], float(values.mean()) * unit)
        if len(values) > 1:
            self.same(where + "std", row[name("std")], float(values.std(ddof=1)) * unit)
        for what, quantile in zip(("min", "p25", "p50", "p75", "max"), np.percentile(values, (0, 25, 50, 75, 100))):
            self.same(where + what, float(row[name(what)]), float(quantile) * unit)

    def check_launches(self, where, number, rank):
        groups = collections.defaultdict(lambda: ([], [], []))
        graphs = {}
        for op in rank.ops:
            if op.busy and op.api and op.api.what == "graph":
                graphs.setdefault(op.api.row, []).append(op)
        samples = [(op.api, op.begin, op.end - op.begin) for op in rank.ops if op.busy and op.api and op.api.what != "graph"]
        samples += [(ops[0].api, ops[0].begin, sum(op.end - op.begin for op in ops)) for ops in graphs.values()]
        for call, begin, gpu in samples:
            delay = max(0, begin - call.end)
            keys = [("all", ""), ("call", call.name)] + ([("hta", "")] if call.name in HTA_CALLS else [])
            for key in keys:
                if begin >= call.begin or key[0] == "hta":
                    groups[key][0].append(delay)
                groups[key][1].append(call.end - call.begin)
                groups[key][2].append(gpu)
        rows = [row for row in self.table("launches", number) if row["by"] != "kernel"]
        seen = set()
        for row in rows:
            values = groups[row["by"], row["name"]][("launch_delay", "cpu_duration", "gpu_duration").index(row["metric"])]
            what = where + f"launches {row['by']} {row['name']} {row['metric']} "
            seen.add((row["by"], row["name"]))
            self.same(what + "count", row["count"], len(values))
            if values:
                self.same(what + "total", row["total_ns"], sum(values))
                self.describe(what, row, values)
        self.same(where + "launch groups", sorted(seen), sorted(groups))

    def check_queue(self, where, number, rank, window):
        lines = collections.defaultdict(list)
        for op in rank.ops:
            if op.busy and op.api:
                lines[op.device, op.context, op.stream].append((op.api.begin, op.begin))
        several = len(rank.devices()) > 1
        contexts = collections.Counter((d, s) for d, _, s in lines)
        rows = {(row["device"], row["context"], row["stream"]): row for row in self.table("queue", number)}
        self.same(where + "streams", len(rows), len(lines))
        for (device, context, stream), pairs in lines.items():
            key = (device if several else None, context if contexts[device, stream] > 1 else None, stream)
            row, what = rows.get(key), where + f"queue {stream} "
            if row is None:
                self.bad.append(what + "is missing")
                continue
            launches, starts = np.sort([p[0] for p in pairs]), np.sort([max(p) for p in pairs])
            # Length at each change: everything launched less everything started.
            times = np.unique(np.concatenate([launches, starts, window]))
            times = times[(times >= window[0]) & (times <= window[1])]
            length = np.searchsorted(launches, times, "right") - np.searchsorted(starts, times, "right")
            held = np.diff(times)
            self.same(what + "length times time", row["queued_ns"], int((length[:-1] * held).sum()))
            self.same(what + "empty", row["empty_ns"], int(held[length[:-1] == 0].sum()))
            self.same(what + "blocked", row["blocked_ns"], int(held[length[:-1] >= 1024].sum()))
            points, now = [], 0
            for _, kind in sorted([(p[0], 0) for p in pairs] + [(p[1], 1) for p in pairs]):
                now += 1 if kind == 0 else -1
                points.append(now)
            self.same(what + "points", row["point_count"], len(points))
            self.describe(what + "points ", row, points, prefix="point_", suffix="")

    def check_copies(self, where, number, rank, window):
        want = collections.Counter()
        for op in rank.ops:
            if op.copy and window[0] <= op.begin <= window[1]:
                want[op.name, "count"] += 1
                want[op.name, "total_ns"] += op.end - op.begin
                want[op.name, "bytes"] += rank.copies["bytes"][op.row]
        got = collections.Counter()
        for row in self.table("copies", number):
            for column in ("count", "total_ns", "bytes"):
                got[row["kind"], column] += row[column]
        self.same(where + "copies", +got, +want)

    def check_stream_waits(self, where, number, rank, window):
        want = stream_waits(rank, lambda begin: window[0] <= begin <= window[1])
        several = len(rank.devices()) > 1
        contexts = collections.defaultdict(lambda: [0, 0, 0])
        for (device, stream, recorded, cls), held in want.items():
            into = contexts[device if several else None, stream, recorded, cls]
            into[:] = [into[0] + len(held), into[1] + sum(held), max(into[2], max(held))]
        got = {(row["device"], row["stream"], row["waits_for"], row["for"]): [row["held"], row["held_ns"], row["max_ns"]]
               for row in self.table("stream-waits", number) if row["held"]}
        self.same(where + "stream-waits", got, dict(contexts))

    def check_path(self, where, number, rank, window):
        for row in self.table("critical-path", number):
            inside = [(b, e) for i, b, e in self.steps[number] if i == row["step"]]
            explained, sums = Graph(rank, inside[0] if inside else window).solve()
            got = {c[:-3]: v for c, v in row.items() if c.endswith("_ns") and c not in ("window_ns", "explained_ns") and v}
            what = where + f"critical path of step {row['step']}"
            self.same(what, got, {k: v for k, v in sums.items() if v})
            self.same(what + " explained", row["explained_ns"], explained)
            self.same(what + " sum", sum(got.values()), row["window_ns"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lockstep")
    parser.add_argument("run")
    args = parser.parse_args()
    checker = Checker(args.lockstep, args.run)
    for number in sorted(checker.files):
        checker.check_rank(number)
    for line in checker.bad[:20]:
        print(line)
    print(f"{'FAILED' if checker.bad else 'ok'}: {checker.compared} values, {len(checker.bad)} differ")
    return 1 if checker.bad or checker.compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
