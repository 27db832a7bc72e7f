"""Jobs that stop, and what PyTorch's Flight Recorder would have written of them. A job is played call by call: each rank
has a list of calls, a call completes once all that belong to it are there, and one thing goes wrong. So the truth is
what was done to the job, and not what a reader would make of the dumps.

usage: jobs_that_stop.py DIRECTORY      writes every job of all_jobs() into a directory of its own
"""
import collections
import json
import os
import pathlib
import pickle
import random
import sys
import time

SECOND = 1_000_000_000
Call = collections.namedtuple("Call", "group kind numel dtype peer", defaults=(256, "Float", None))


class Job:
    """`programs`: the calls of each rank. `depth`: how many calls a rank's host is ahead of its GPU (1: it blocks)."""

    def __init__(self, name, size, depth=1, seed=0):
        self.name, self.size, self.depth = name, size, depth
        self.random = random.Random(seed)
        self.groups = {"0": ("default_pg", list(range(size)))}
        self.programs = [[] for _ in range(size)]
        self.host_ends = {}     # Rank: its host makes no call from this index on.
        self.gpu_ends = {}      # Rank: its GPU is not seen to complete this call and those behind it.
        self.frozen = set()     # (group, number): completes nowhere.
        self.cause, self.culprits, self.hangs = None, [], True
        self.without_dump, self.damaged = set(), set()
        self.style = {}

    def group(self, label, ranks):
        name = str(len(self.groups) + 3 * len(self.groups) // 2)
        self.groups[name] = (label, list(ranks))
        return name

    def all_call(self, group, kind, numel=256, dtype="Float"):
        for rank in self.groups[group][1]:
            self.programs[rank].append(Call(group, kind, numel, dtype))

    def message(self, group, source, target, numel=1024):
        self.programs[source].append(Call(group, "send", numel, "BFloat16", target))
        self.programs[target].append(Call(group, "recv", numel, "BFloat16", source))

    # How it ends -----------------------------------------------------------------------------------------------------

    def play(self):
        """self.made: by rank, [call, number, done]; `number`: of the group's collectives, or of the pair's messages."""
        self.made = [[] for _ in range(self.size)]
        counts = [collections.Counter() for _ in range(self.size)]
        instances = collections.defaultdict(dict)  # What belongs together: rank -> index of its call.
        for_gpu = [0] * self.size                  # The call that the rank's GPU is at.
        moved = True
        while moved:
            moved = False
            for rank in range(self.size):
                while (len(self.made[rank]) < min(len(self.programs[rank]), self.host_ends.get(rank, 1 << 60))
                       and len(self.made[rank]) < for_gpu[rank] + self.depth):
                    call = self.programs[rank][len(self.made[rank])]
                    key = (call.group,) if call.peer is None else (call.group, call.kind, rank, call.peer)
                    counts[rank][key] += 1
                    number = counts[rank][key]
                    instance = (call.group, number) if call.peer is None else (
                        call.group, number, *((rank, call.peer) if call.kind == "send" else (call.peer, rank)))
                    instances[instance][rank] = len(self.made[rank])
                    self.made[rank].append([call, number, False, instance])
                    moved = True
            for rank in range(self.size):
                while for_gpu[rank] < len(self.made[rank]) and self.step_gpu(rank, for_gpu, instances):
                    moved = True
        return self

    def step_gpu(self, rank, for_gpu, instances):
        """Completes the call that this rank's GPU is at, on all ranks, if all that belong to it have come to it."""
        call, number, _, instance = self.made[rank][for_gpu[rank]]
        if instance[:2] in self.frozen:
            return False
        there = instances[instance]
        members = self.groups[call.group][1] if call.peer is None else instance[2:]
        if set(there) != set(members):
            return False
        calls = [self.made[r][i][0] for r, i in there.items()]
        if len({(c.kind if c.peer is None else "", c.numel, c.dtype) for c in calls}) > 1 and "all_to_all" != calls[0].kind:
            return False
        if any(for_gpu[r] != i for r, i in there.items()):
            return False
        # Its part in the first call that it is not seen to complete is done: the others complete that one.
        if any(i > self.gpu_ends.get(r, 1 << 60) for r, i in there.items()):
            return False
        for r, i in there.items():
            if i < self.gpu_ends.get(r, 1 << 60):
                self.made[r][i][2] = True
                for_gpu[r] += 1
            else:
                self.gpu_stuck = True
        return call.peer is not None or rank not in self.gpu_ends or self.made[rank][for_gpu[rank] - 1][2]

    # What is written -------------------------------------------------------------------------------------------------

    def dump_of(self, rank, now):
        style = self.style
        backend, ring = style.get("backend", "nccl"), style.get("ring", 2000)
        age = style.get("age_s", 120) * SECOND
        names = [name for name, (_, ranks) in self.groups.items() if rank in ranks]
        ids = {name: 2 * i if style.get("gaps") else i for i, name in enumerate(names)}  # The rank's own numbers.
        gloo = backend == "gloo"
        entries, messages, collectives = [], collections.Counter(), collections.Counter()
        enqueued, completed = {}, {}
        total = len(self.made[rank])
        for index, (call, number, done, _) in enumerate(self.made[rank]):
            label, ranks = self.groups[call.group]
            is_message = call.peer is not None
            (messages if is_message else collectives)[call.group] += 1
            count = (messages if is_message else collectives)[call.group]
            if gloo:  # PyTorch 2.15: messages have no entries and no place in the status, but a number.
                if is_message:
                    continue
                count += messages[call.group]
            enqueued[call.group] = count
            if done:
                completed[call.group] = count
            title = f"{backend}:{call.kind}"
            if is_message:
                arrow = "->" if call.kind == "send" else "<-"
                title += f" {ranks.index(rank)}{arrow}{ranks.index(call.peer)}"
            created = int(now - age - (total - index) * 1_000_000)
            sizes = [[call.numel]]
            out = [[call.numel * len(ranks)]] if call.kind == "_all_gather_base" else sizes
            entries.append({
                "frames": [{"name": call.kind, "filename": "/opt/lib/site-packages/torch/distributed/distributed_c10d.py", "line": 1},
                           {"name": "step", "filename": "/home/me/train.py", "line": 40 + index % 7}],
                "record_id": index, "pg_id": ids[call.group], "process_group": (call.group, label), "thread_name": "python3",
                "thread_id": "23456244340032", "collective_seq_id": collectives[call.group], "p2p_seq_id": 0 if gloo else messages[call.group],
                "op_id": collectives[call.group] + messages[call.group], "profiling_name": title, "time_created_ns": created, "input_sizes": sizes,
                "input_dtypes": [call.dtype], "output_sizes": out, "output_dtypes": [call.dtype],
                "state": "completed" if done and not gloo else "started" if self.shows_start(rank, index) else "scheduled",
                "time_discovered_started_ns": created + 1000 if self.shows_start(rank, index) else None,
                "time_discovered_completed_ns": created + 5000 if done and not gloo else None,
                "retired": done, "timeout_ms": 600000, "is_p2p": is_message})
        kept = entries[-ring:]
        if style.get("only_active"):
            kept = [entry for entry in kept if not entry["retired"]]
        config = {name: {"name": name, "desc": self.groups[name][0], "ranks": str(self.groups[name][1])} for name in names}
        if backend == "gloo":  # As PyTorch 2.15 writes it.
            config = {"": {"name": "", "desc": "", "ranks": str(self.groups[names[-1]][1])}}
        status = {str(ids[name]): {"last_enqueued_collective": enqueued[name], "last_started_collective": -1,
                                   "last_completed_collective": completed.get(name, -1)} for name in enqueued}
        return {"version": "2.10", "pg_config": config, "nccl_version": "2.27.3", "pg_status": status, "entries": kept}

    def shows_start(self, rank, index):
        if not self.style.get("starts"):
            return False
        call, _, done, _ = self.made[rank][index]
        return done or rank not in self.style.get("unstarted", ())

    def write(self, directory):
        directory.mkdir(parents=True)
        now = time.time_ns()
        form = self.style.get("form", "pickle2")
        for rank in range(self.size):
            if rank in self.without_dump:
                continue
            dump = self.dump_of(rank, now)
            kind = form if form != "mixed" else ("json", "pickle2", "pickle4")[rank % 3]
            if kind == "json":
                for entry in dump["entries"]:
                    del entry["frames"]
                    for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
                        entry[key] = entry[key] or 0
                dump["pg_status"] = {i: {k: str(v) for k, v in s.items()} for i, s in dump["pg_status"].items()}
                data, name = json.dumps(dump).encode(), f"fr_rank{rank}.json"
            else:
                data = pickle.dumps(dump, protocol=int(kind[-1]))
                name = f"_dump_{rank}" if self.style.get("names") != "nccl" else f"nccl_trace_rank_{rank}"
            if rank in self.damaged:
                data = data[:len(data) // 2]
            (directory / name).write_bytes(data)
            os.utime(directory / name, ns=(now, now))

    def truth(self, cause, culprits=()):
        self.cause, self.culprits, self.hangs = cause, sorted(culprits), cause is not None
        return self

    def styled(self, **style):
        self.style.update(style)
        return self


def training(name, size, tp=1, pp=1, steps=6, depth=1, seed=0):
    """Data, tensor and pipeline parallelism over `size` ranks: ranks of one tensor group are neighbours."""
    job = Job(name, size, depth, seed)
    dp = size // (tp * pp)
    rank_of = lambda d, p, t: (p * dp + d) * tp + t  # noqa: E731
    tensor = [job.group("TENSOR", [rank_of(d, p, t) for t in range(tp)]) for p in range(pp) for d in range(dp)] if tp > 1 else []
    data = [job.group("DATA", [rank_of(d, p, t) for d in range(dp)]) for p in range(pp) for t in range(tp)] if dp > 1 else []
    pipes = {(d, t): job.group("PIPE", [rank_of(d, p, t) for p in range(pp)]) for d in range(dp) for t in range(tp)} if pp > 1 else {}
    job.all_call("0", "all_reduce", 1)
    for step in range(steps):
        for p in range(pp):
            if p:
                for (d, t), group in pipes.items():
                    job.message(group, rank_of(d, p - 1, t), rank_of(d, p, t))
            for layer in range(2):
                for group in tensor[p * dp:(p + 1) * dp]:
                    job.all_call(group, "all_reduce", 4096 + layer)
        for i, group in enumerate(data):
            job.all_call(group, "_reduce_scatter_base" if step % 2 else "all_reduce", 100 + step)
            job.all_call(group, "_all_gather_base", 50 + step)
        job.all_call("0", "all_reduce", 1 + step % 2)
    return job


def host_stops(job, rank, share=0.6):
    job.host_ends[rank] = max(1, int(len(job.programs[rank]) * share))
    return job.truth("did_not_enter", [rank])


def gpu_stops(job, rank, share=0.6):
    # At a collective: of a message, the other end is seen to be done as well.
    index = max(1, int(len(job.programs[rank]) * share))
    while job.programs[rank][index].peer is not None:
        index += 1
    job.gpu_ends[rank] = index
    return job.truth("behind_on_gpu", [rank])


def change_call(job, rank, nth, **change):
    """Of the default group's calls."""
    places = [i for i, call in enumerate(job.programs[rank]) if call.group == "0"]
    job.programs[rank][places[nth]] = job.programs[rank][places[nth]]._replace(**change)
    return job


def distinct(name, size, calls=12, depth=8):
    """Every call differs from its neighbours, so that a shift by one can be seen."""
    job = Job(name, size, depth)
    for i in range(calls):
        job.all_call("0", ("all_reduce", "broadcast", "_all_gather_base")[i % 3], 100 + i)
    return job


def all_jobs():
    jobs = []
    add = jobs.append
    forms = ("pickle2", "json", "pickle4", "mixed", "pickle5", "pickle3")
    # A rank's host stops.
    for i, (size, tp, pp, rank) in enumerate(((2, 1, 1, 1), (3, 1, 1, 0), (4, 2, 1, 3), (8, 2, 2, 5), (8, 1, 4, 2), (16, 4, 2, 9),
                                              (32, 4, 2, 31), (64, 8, 4, 17))):
        add(host_stops(training(f"host_{size}_{tp}_{pp}", size, tp, pp, depth=(1, 6)[i % 2]), rank).styled(form=forms[i % 6]))
    add(host_stops(training("host_xccl", 6, 2), 4).styled(backend="xccl"))
    add(host_stops(training("host_ring", 16, 4, steps=40), 6).styled(ring=20))
    add(host_stops(training("host_ring_async", 16, 4, steps=40, depth=5), 6).styled(ring=12, form="json"))
    add(host_stops(training("host_active_only", 8, 2, 2), 3).styled(only_active=True))
    add(host_stops(training("host_active_gaps", 8, 2), 1).styled(only_active=True, gaps=True, names="nccl"))
    # On gloo.
    for size, rank in ((2, 0), (4, 2), (8, 7)):
        add(host_stops(training(f"gloo_{size}", size), rank).styled(backend="gloo", form=("json", "pickle2")[size % 4 == 0]))
    add(host_stops(training("gloo_ring", 8, steps=30), 5).styled(backend="gloo", ring=10))
    # Rank 1 waits in a receive that is not recorded, the others for the sum of all.
    job = Job("gloo_message", 4)
    job.message("0", 2, 1)
    job.all_call("0", "all_reduce", 5)
    job.message("0", 2, 1)
    job.all_call("0", "all_reduce", 6)
    job.host_ends[2] = 2
    add(job.truth("cannot_tell").styled(backend="gloo"))
    # A GPU stops.
    for i, (size, tp, pp, rank) in enumerate(((2, 1, 1, 0), (4, 2, 1, 1), (8, 2, 2, 6), (16, 4, 1, 13), (64, 8, 2, 40))):
        add(gpu_stops(training(f"gpu_{size}_{tp}_{pp}", size, tp, pp, depth=8), rank).styled(form=forms[i % 6]))
    add(gpu_stops(training("gpu_active_only", 8, 2, depth=8), 5).styled(only_active=True))
    two = gpu_stops(training("gpu_two", 16, 4, depth=8), 2)
    two.gpu_ends[9] = two.gpu_ends[2]
    add(two.truth("behind_on_gpu", [2, 9]))
    # Some have started it, one has not.
    job = distinct("not_started", 8)
    job.frozen.add(("0", 9))
    add(job.truth("behind_on_gpu", [3]).styled(starts=True, unstarted=[3]))
    # Another operation, another size, another type.
    add(change_call(distinct("other_operation", 8, depth=1), 6, 7, kind="reduce_scatter").truth("other_operation", [6]))
    add(change_call(distinct("other_operation_2", 2, depth=1), 1, 7, kind="reduce_scatter").truth("other_operation"))
    add(change_call(distinct("other_size", 8), 2, 6, numel=7).truth("mismatch", [2]).styled(form="json"))
    add(change_call(distinct("other_type", 4), 1, 6, dtype="Half").truth("mismatch", [1]))
    add(change_call(distinct("other_size_2", 2), 1, 6, numel=7).truth("mismatch"))
    job = distinct("other_size_2_of_4", 4)
    for rank in (1, 3):
        change_call(job, rank, 6, numel=7)
    add(job.truth("mismatch"))
    add(change_call(distinct("other_size_gloo", 8, depth=1), 2, 6, numel=7).truth("mismatch", [2]).styled(backend="gloo"))
    job = distinct("other_size_ring", 8, calls=60)
    add(change_call(job, 5, 50, numel=9).truth("mismatch", [5]).styled(ring=11))
    job = distinct("swapped", 8)
    program = job.programs[4]
    program[6], program[7] = program[7], program[6]
    add(job.truth("other_operation", [4]))
    # A call less, a call more.
    job = distinct("missing_call", 8)
    del job.programs[3][6]
    add(job.truth("extra_or_missing_call", [3]))
    job = distinct("extra_call", 8)
    job.programs[5].insert(6, Call("0", "all_reduce", 9999))
    add(job.truth("extra_or_missing_call", [5]))
    job = distinct("missing_call_2", 2)
    del job.programs[1][6]
    add(job.truth("extra_or_missing_call"))
    job = training("one_more_at_the_end", 8)
    job.programs[2].append(Call("0", "all_reduce", 5))
    add(job.truth("extra_or_missing_call"))
    # Nothing is wrong with any rank.
    for size in (2, 8, 32):
        job = training(f"all_inside_{size}", size, depth=4)
        job.frozen.add(("0", 4))
        add(job.truth("all_inside"))
    job = training("all_inside_tensor", 16, 4, depth=1)
    job.frozen.add(([name for name, (label, _) in job.groups.items() if label == "TENSOR"][1], 5))
    add(job.truth("all_inside"))
    # Circles.
    job = training("two_groups", 4, 2)
    one, two = (name for name, (label, _) in job.groups.items() if label == "TENSOR")
    a, b = job.group("A", [0, 1]), job.group("B", [0, 1])
    job.programs[0] += [Call(a, "all_reduce"), Call(b, "all_reduce")]
    job.programs[1] += [Call(b, "all_reduce"), Call(a, "all_reduce")]
    add(job.truth("circular_wait", [0, 1]))
    for size in (2, 5, 16):
        job = training(f"ring_of_sends_{size}", size)
        ring = job.group("RING", range(size))
        for rank in range(size):
            job.programs[rank] += [Call(ring, "send", 64, "Float", (rank + 1) % size), Call(ring, "recv", 64, "Float", (rank - 1) % size)]
        add(job.truth("circular_wait", range(size)))
    job = training("both_receive", 8)
    job.programs[3] += [Call("0", "recv", 64, "Float", 6), Call("0", "send", 64, "Float", 6)]
    job.programs[6] += [Call("0", "recv", 64, "Float", 3), Call("0", "send", 64, "Float", 3)]
    add(job.truth("circular_wait", [3, 6]))
    # A message for which nobody is there.
    job = training("send_to_nobody", 4)
    job.programs[1] += [Call("0", "send", 64, "Float", 2)]
    add(job.truth("did_not_enter", [2]))
    job = training("message_size", 4)
    job.programs[1] += [Call("0", "send", 64, "Float", 2)]
    job.programs[2] += [Call("0", "recv", 65, "Float", 1)]
    add(job.truth("mismatch"))
    # Dumps that are not there.
    for size, rank in ((4, 3), (8, 0), (32, 12)):
        job = host_stops(training(f"no_dump_{size}", size), rank).truth("no_dump", [rank])
        job.without_dump.add(rank)
        add(job)
    job = host_stops(training("no_dump_tensor", 16, 4), 6).truth("no_dump", [6])
    job.without_dump.add(6)
    add(job)
    job = host_stops(distinct("no_dump_gloo", 8, depth=1), 3).truth("no_dump", [3]).styled(backend="gloo")
    job.without_dump.add(3)
    add(job)
    # Gloo's dumps do not say who belongs to a group but the default one.
    job = host_stops(training("no_dump_gloo_group", 8), 3).truth("cannot_tell").styled(backend="gloo")
    job.without_dump.add(3)
    add(job)
    job = host_stops(training("no_dump_of_another", 16, 4), 6)
    job.without_dump |= {1, 12}
    add(job)
    job = host_stops(training("damaged_another", 8, 2), 6)
    job.damaged |= {1}
    add(job)
    job = host_stops(training("damaged_culprit", 8), 6).truth("no_dump", [6])
    job.damaged |= {6}
    add(job)
    job = host_stops(training("two_without_dump", 8), 6).truth("cannot_tell")
    job.without_dump |= {6, 2}
    add(job)
    job = gpu_stops(training("gpu_no_dump_of_another", 8, depth=8), 4)
    job.without_dump |= {7}
    add(job)
    # Nothing hangs.
    add(training("healthy_end", 8, 2, 2).truth(None))
    add(training("healthy_gloo", 4).truth(None).styled(backend="gloo"))
    add(host_stops(training("healthy_at_work", 8, 2, depth=6), 3).truth(None).styled(age_s=0.05))
    add(training("healthy_active_only", 8, 2).truth(None).styled(only_active=True))
    return jobs


def large(size=512):
    job = host_stops(training("large", size, 8, 4, steps=60, depth=4), 300)
    return job.styled(form="pickle2")


if __name__ == "__main__":
    for made in all_jobs():
        made.play().write(pathlib.Path(sys.argv[1]) / made.name)
