#!/usr/bin/env python3
"""Recomputes the identity of every rank and step from the HDF5 columns.

  identity.py RUN [--timeline FILE]

Reads the rank files and, from timeline.h5, only the clock table and the
windows; matches the collectives, splits them, and computes the terms in
Python. Every number in step_ranks and rank_totals must be the same to the
nanosecond, and the terms must sum to the window. Works on captured and on
synthetic runs.
"""

import argparse
import bisect
import math
import os
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import definitions
import rank_tables

NO_TIME = -2**63
NONE = 0xFFFFFFFF
TORCH_GROUP = 4  # comms.kind.
NCCL = 3  # comms.kind: numbers its operations per function; members are known from all ranks' files only.
# Operation numbers of core/mpi_ops.def.
IO_OPS = set(range(300, 360))
RMA_OPS = set(range(400, 440)) - {412}  # MPI_Win_test is a query.
SETUP_OPS = set(range(200, 204))
OTHER_OPS = set(range(170, 204)) | set(range(210, 220)) | {160, 161, 162} | IO_OPS | RMA_OPS


def llround(x):
    return int(math.floor(abs(x) + 0.5)) * (1 if x >= 0 else -1)


class ClockMap:
    """docs/trace-format.md: cluster = local + offset, linear between knots; and back."""

    def __init__(self, clock, rank):
        rows = np.flatnonzero(clock["rank"] == rank)
        knots = sorted(((int(clock["local_ns"][i]), int(clock["offset_ns"][i]), int(clock["base_error_ns"][i]),
                         int(clock["slew_ppb"][i])) for i in rows), key=lambda k: k[0])
        self.knots = []
        for local, offset, base, slew in knots:
            if self.knots:
                before = self.knots[-1]
                if before[0] == local:
                    continue
                offset = max(offset, before[0] + before[1] + 1 - local)
            self.knots.append((local, offset, base, slew))
        self.local = [k[0] for k in self.knots]
        self.cluster = [k[0] + k[1] for k in self.knots]

    def segment(self, table, t):
        i = bisect.bisect_right(table, t, 1, len(table) - 1)
        return self.knots[i - 1], self.knots[i]

    def to_cluster(self, t):
        if not self.knots:
            return t
        if len(self.knots) == 1:
            return t + self.knots[0][1]
        a, b = self.segment(self.local, t)
        return t + a[1] + llround(float(t - a[0]) * (float(b[1] - a[1]) / float(b[0] - a[0])))

    def to_local(self, t):
        if not self.knots:
            return t
        if len(self.knots) == 1:
            return t - self.knots[0][1]
        a, b = self.segment(self.cluster, t)
        ca, cb = a[0] + a[1], b[0] + b[1]
        return t - a[1] - llround(float(t - ca) * (float(b[1] - a[1]) / float(cb - ca)))


    def error(self, t):
        """Linear base between the knots, plus the nearer knot's slew."""
        if not self.knots:
            return 2**63 - 1
        at = bisect.bisect_left(self.local, t)
        if at in (0, len(self.knots)):
            knot = self.knots[min(at, len(self.knots) - 1)]
            return knot[2] + math.ceil(abs(t - knot[0]) * 1e-9 * knot[3])
        a, b = self.knots[at - 1], self.knots[at]
        near = a if t - a[0] < b[0] - t else b
        base = a[2] + (t - a[0]) / (b[0] - a[0]) * (b[2] - a[2])
        return math.ceil(base) + math.ceil(abs(t - near[0]) * 1e-9 * near[3])


def table(f, name, columns):
    group = f[name] if name in f else {}
    found = {c: group[c][:] for c in columns if c in group}
    n = min(map(len, found.values()), default=0)
    return {c: found[c][:n] if c in found else np.zeros(n, dtype=np.int64) for c in columns}


class Strings:
    def __init__(self, f):
        s = table(f, "strings", ("offset_bytes", "length_bytes"))
        data = bytes(f["string_bytes"]["value"][:].tobytes()) if "string_bytes" in f else b""
        self.texts = [data[int(o):int(o) + int(l)].decode("utf-8", "replace")
                      for o, l in zip(s["offset_bytes"], s["length_bytes"])]

    def __getitem__(self, i):
        return self.texts[int(i)] if int(i) < len(self.texts) else ""


def pairs(begin, end):
    return list(zip(begin.tolist(), end.tolist()))


def read_rank(path, rank):
    with rank_tables.open_file(path, "r") as f:
        threads = table(f, "threads", ("thread", "tid", "training", "process", "begin_ns", "end_ns", "records"))
        calls = table(f, "mpi_calls", ("begin_ns", "duration_ns", "thread", "op"))
        ranges = table(f, "ranges", ("begin_ns", "duration_ns", "thread", "category"))
        kernels = table(f, "kernels", ("begin_ns", "duration_ns", "work"))
        copies = table(f, "copies", ("begin_ns", "duration_ns"))
        comms = table(f, "comms", ("global_id", "size", "rank", "kind", "unidentified", "first_world_rank", "stride"))
        members = table(f, "comm_members", ("comm", "comm_rank", "world_rank"))
        c = table(f, "collectives", ("comm", "seq", "start", "kind", "mode", "uneven", "thread", "begin_ns", "post_end_ns",
                                     "last_incomplete_ns", "wait_begin_ns", "end_ns", "bytes", "root", "kernel"))
        p = table(f, "p2p", ("comm", "direction", "mode", "peer", "peer_world_rank", "tag", "seq", "thread", "begin_ns",
                             "post_end_ns", "last_incomplete_ns", "wait_begin_ns", "end_ns", "outcome", "kernel", "bytes"))
        if "p2p" not in f or "kernel" not in f["p2p"]:
            p["kernel"] = np.full(len(p["seq"]), NONE)
        steps = table(f, "steps", ("thread", "begin_ns", "end_ns", "complete", "cpu_ns", "others_cpu_ns"))
        waits = table(f, "blocked", ("begin_ns", "duration_ns", "thread", "kind", "waker", "woken_ns", "others_cpu_ns", "timed_out"))
        samples = table(f, "cpu_samples", ("time_ns", "thread", "run_delay_ns"))
        requests = table(f, "mpi_requests", ("op", "wait_thread", "wait_begin_ns", "end_ns"))

    a = definitions.Activity(rank, len(kernels["begin_ns"]) > 0)
    # The training thread marks the steps, else it is the main thread.
    marked = [t for t in steps["thread"].tolist() if t != NONE]
    training = [int(i) for i in np.flatnonzero(threads["training"] == 1)]
    thread = max(sorted(set(marked)), key=marked.count) if marked else int(threads["thread"][training[0]]) if training else 0
    ends = calls["begin_ns"] + calls["duration_ns"]
    a.all_calls = pairs(calls["begin_ns"], ends)
    of_training = calls["thread"] == thread
    a.training_calls = pairs(calls["begin_ns"][of_training], ends[of_training])
    waited = (requests["wait_thread"] == thread) & (requests["end_ns"] != NO_TIME)

    def calls_of(ops):
        chosen, posted = of_training & np.isin(calls["op"], list(ops)), waited & np.isin(requests["op"], list(ops))
        return pairs(calls["begin_ns"][chosen], ends[chosen]) + pairs(requests["wait_begin_ns"][posted], requests["end_ns"][posted])

    a.other_calls, a.io_calls, a.rma_calls = calls_of(OTHER_OPS), calls_of(IO_OPS), calls_of(RMA_OPS)
    a.setup_calls = calls_of(SETUP_OPS)
    inputs = (ranges["category"] == 1) & (ranges["thread"] == thread)
    a.inputs = pairs(ranges["begin_ns"][inputs], (ranges["begin_ns"] + ranges["duration_ns"])[inputs])
    a.training = thread
    for i in np.flatnonzero(waits["thread"] == thread):
        w = {column: int(values[i]) for column, values in waits.items()}
        a.waits.append(dict(begin=w["begin_ns"], end=w["begin_ns"] + w["duration_ns"], kind=w["kind"], timed_out=w["timed_out"],
                            waker=None if w["waker"] == NONE else w["waker"], woken=None if w["woken_ns"] == NO_TIME else w["woken_ns"],
                            others_cpu=None if w["others_cpu_ns"] < 0 else w["others_cpu_ns"]))
    a.steps = [(b, e, bool(complete), cpu if cpu >= 0 else None, others if others >= 0 else None) for b, e, complete, cpu, others in
               sorted(zip(*(steps[c].tolist() for c in ("begin_ns", "end_ns", "complete", "cpu_ns", "others_cpu_ns"))))]
    for time_ns, of, delay in zip(*(samples[c].tolist() for c in ("time_ns", "thread", "run_delay_ns"))):
        if of == thread and delay >= 0 and (not a.delays or (time_ns > a.delays[-1][0] and delay >= a.delays[-1][1])):
            a.delays.append((time_ns, delay))
    compute = kernels["work"] == 0
    a.kernels = pairs(kernels["begin_ns"][compute], (kernels["begin_ns"] + kernels["duration_ns"])[compute])
    a.copies = pairs(copies["begin_ns"], copies["begin_ns"] + copies["duration_ns"])

    alive = (threads["end_ns"] > threads["begin_ns"]) | (threads["records"] > 0)
    a.life_end = int(threads["end_ns"][alive].max(initial=NO_TIME))

    world_of = {}
    for comm, comm_rank, world in zip(members["comm"].tolist(), members["comm_rank"].tolist(), members["world_rank"].tolist()):
        world_of[(comm, comm_rank)] = world

    def world_rank(comm, comm_rank):
        if comm_rank < 0:
            return -1
        if comms["stride"][comm] != 0 and comms["first_world_rank"][comm] >= 0:
            return int(comms["first_world_rank"][comm]) + comm_rank * int(comms["stride"][comm])
        return world_of.get((comm, comm_rank), -1)

    def time(value):
        return None if value == NO_TIME else int(value)

    def member(comm, comm_rank):
        if comm < n_comms and comms["kind"][comm] == NCCL and comms["first_world_rank"][comm] < 0:
            return ("nccl", int(comms["global_id"][comm]), comm_rank) if comm_rank >= 0 else -1
        return world_rank(comm, comm_rank)

    n_comms = len(comms["global_id"])
    a.nccl = [(int(comms["global_id"][i]), int(comms["rank"][i])) for i in range(n_comms) if comms["kind"][i] == NCCL]
    # Of the other group of an inter-communicator the other side's files tell.
    a.inter = [(int(comms["global_id"][i]), int(comms["rank"][i]), int(comms["first_world_rank"][i]))
               for i in range(n_comms) if comms["kind"][i] == 1 and comms["global_id"][i] and not comms["unidentified"][i]]
    c, p, comms = ({column: values.tolist() for column, values in t.items()} for t in (c, p, comms))
    for i in range(len(c["seq"])):
        comm = int(c["comm"][i])
        known = comm < n_comms and comms["global_id"][comm] != 0 and not comms["unidentified"][comm]
        a.ops.append(dict(
            comm=int(comms["global_id"][comm]) if known else ("unknown", rank, i), seq=int(c["seq"][i]),
            start=int(c["start"][i]), kind=int(c["kind"][i]),
            function=int(c["kind"][i]) if known and comms["kind"][comm] == NCCL else 0, mode=int(c["mode"][i]), bytes=int(c["bytes"][i]), thread=int(c["thread"][i]),
            uneven=int(c["uneven"][i]), members=int(comms["size"][comm]) if known else 2**31,
            root=member(comm, int(c["root"][i])) if known else -1,
            splittable=bool(known and comms["kind"][comm] != 1), begin=int(c["begin_ns"][i]),
            post_end=time(c["post_end_ns"][i]), last_incomplete=time(c["last_incomplete_ns"][i]),
            wait_begin=time(c["wait_begin_ns"][i]), end=time(c["end_ns"][i])))
    for i in range(len(p["seq"])):
        if p["outcome"][i] == 1:
            continue  # Cancelled: nothing was communicated.
        receive, posted = int(p["direction"][i]) == 1, int(p["mode"][i]) != 0
        end = time(p["end_ns"][i])
        if end is None and posted:
            if receive:
                continue  # A posted receive without a message moves nothing.
            end = max(int(p["begin_ns"][i]), int(p["post_end_ns"][i]))
        comm = int(p["comm"][i])
        peer = int(p["peer_world_rank"][i])
        if isinstance(peer, int) and peer < 0 and comm < n_comms and comms["kind"][comm] != 1:
            peer = member(comm, int(p["peer"][i]))
        identified = comm < n_comms and comms["global_id"][comm] != 0 and not comms["unidentified"][comm]
        if isinstance(peer, int) and peer < 0 and identified and comms["kind"][comm] == 1:
            peer = ("inter", int(comms["global_id"][comm]), int(p["peer"][i]), int(comms["first_world_rank"][comm]))
        known = identified and peer != -1
        ends_of = (peer, rank) if receive else (rank, peer)
        a.ops.append(dict(
            p2p=True, receive=receive, comm=int(comms["global_id"][comm]) if known else None, row=i,
            message=ends_of + (int(p["tag"][i]), int(p["seq"][i])) if known else None, mode=int(p["mode"][i]),
            bytes=int(p["bytes"][i]), completed=p["outcome"][i] == 0 and comms["kind"][comm] != TORCH_GROUP if identified else False,
            thread=int(p["thread"][i]), begin=int(p["begin_ns"][i]), post_end=time(p["post_end_ns"][i]),
            last_incomplete=time(p["last_incomplete_ns"][i]), wait_begin=time(p["wait_begin_ns"][i]),
            end=time(p["end_ns"][i])))
    # GPU communication kernels that no recorded collective explains: communication, but not to be split.
    if a.gpu:
        explained = set(k for k in c["kernel"] + p["kernel"] if k != NONE)
        for i in np.flatnonzero(kernels["work"] == 1).tolist():
            if i not in explained:
                begin = int(kernels["begin_ns"][i])
                end = begin + int(kernels["duration_ns"][i])
                a.ops.append(dict(p2p=True, receive=False, comm=None, message=None, mode=3, begin=begin, post_end=end,
                                  last_incomplete=None, wait_begin=begin, end=end))
    return a


def resolve_nccl(activities):
    """World ranks of members of NCCL's communicators: who a member is its own file says."""
    of_nccl = {(comm, comm_rank): a.rank for a in activities for comm, comm_rank in a.nccl}
    resolved = lambda world: of_nccl.get(world[1:], -1) if isinstance(world, tuple) and world[0] == "nccl" else world
    for a in activities:
        for op in a.ops:
            if "root" in op:
                op["root"] = resolved(op["root"])
            if op.get("message"):
                op["message"] = tuple(map(resolved, op["message"][:2])) + op["message"][2:]


def read_run(run, timeline):
    strings = Strings(timeline)
    ranks = table(timeline, "ranks", ("rank", "file", "state"))
    clock = table(timeline, "clock", ("rank", "local_ns", "offset_ns", "base_error_ns", "slew_ppb"))
    activities = []
    for i in range(len(ranks["rank"])):
        path = os.path.join(run, strings[ranks["file"][i]])
        if ranks["state"][i] == 3 or not path.endswith(".h5") or not os.path.exists(path):
            continue
        rank = int(ranks["rank"][i])
        a = read_rank(path, rank)
        clock_map = ClockMap(clock, rank)
        a.to_cluster, a.to_local, a.error = clock_map.to_cluster, clock_map.to_local, clock_map.error
        activities.append(a)
    members = {}
    for a in activities:
        for comm, comm_rank, first in a.inter:
            members.setdefault((comm, comm_rank), []).append((first, a.rank))
    resolve_nccl(activities)
    for a in activities:
        for op in a.ops:
            if not op.get("message"):
                continue
            place = [world if not isinstance(world, tuple) else
                     next((r for first, r in members.get(world[1:3], []) if first != world[3]), -1)
                     for world in op["message"][:2]]
            op["message"] = None if -1 in place else tuple(place) + op["message"][2:]
    return activities


def check(run, timeline_path=None):
    """(lines about what differs, a line about what was compared)"""
    run = os.path.realpath(run)
    with h5py.File(timeline_path or os.path.join(run, "timeline.h5"), "r") as timeline:
        return compare(timeline, read_run(run, timeline))


def compare(timeline, activities):
    columns = definitions.COLUMNS
    tables = {name: table(timeline, name, ("rank", "begin_ns", "end_ns") + columns +
                          (("index",) if name == "step_ranks" else ())) for name in ("step_ranks", "rank_totals")}
    definitions.set_limits(activities, definitions.match(activities))
    bad, cells = [], 0
    definitions.late_partners(activities)
    for a in activities:
        definitions.split_rows(a)
        sets = definitions.Breakdown(a)
        for name, rows in tables.items():
            for i in np.flatnonzero(rows["rank"] == a.rank):
                row = {c: int(rows[c][i]) for c in rows}
                begin, end = row["begin_ns"], row["end_ns"]
                terms = sets.terms(begin, end)
                cells += 1
                what = f"{name} rank {a.rank}" + (f" step {row['index']}" if "index" in row else "")
                total = sum(row[t] for t in definitions.TERMS)
                if total != end - begin:
                    bad.append(f"{what}: terms sum to {total}, window is {end - begin}")
                for t in columns:
                    if row[t] != terms[t]:
                        bad.append(f"{what} {t}: stored {row[t]}, recomputed {terms[t]} (difference {row[t] - terms[t]})")
    if cells == 0:
        bad.append("nothing to check: no windows, or no readable rank files")
    return bad, f"identity: {len(activities)} ranks, {cells} windows, {len(bad)} differences"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--timeline")
    args = parser.parse_args()
    bad, said = check(args.run, args.timeline)
    print(*bad[:40], said, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
