#!/usr/bin/env python3
"""Traces of torch.profiler whose GPU is idle for reasons that were put in: every gap is made of parts of known kind and
length, and all of it must come back, to the ns, gap by gap; the independent computation (idle_parts.py) must agree.

  idle_mixtures.py LOCKSTEP WORK_DIR --ranks N [--seed S] [--oracle M [--gaps G]]

Each rank is a mixture of its own; the oracle looks at the first M of them.
"""

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_tables

MAIN, OTHER, GLOO = 11, 12, 13
BEGIN = 1_000_000
# What the host may do in a gap before the launch; "sync" is the wait in which the gap begins, told apart below.
HOST = ("operator", "between", "input", "memory", "call", "load", "copy_call", "launch", "communication", "backward")


class Mixture:
    """Work on stream 7 of one device, one operation after the other, with gaps between; truth[begin] = {kind: ns}."""

    def __init__(self, seed):
        self.r, self.threads = random.Random(seed), random.Random(seed ^ 0x91007)
        self.events, self.correlation, self.truth = [], 10, {}
        self.host = BEGIN         # Until when the main thread's time is told.
        self.gpu = None           # End of the GPU's work so far.
        self.marks_input = self.r.random() < 0.5
        self.loop = not self.marks_input and self.r.random() < 0.6  # An input loop of the program's own, by steps.
        self.kinds = [k for k in HOST if k != "input" or self.marks_input]
        self.two_devices = self.r.random() < 0.3
        self.free_there = 0
        self.shape = {k: self.r.random() for k in self.kinds}  # Mixtures differ in what they are made of.

    def event(self, cat, name, begin, end, tid, pid=1, **args):
        assert end >= begin, (cat, name)
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": begin / 1000,
                            "dur": (end - begin) / 1000, "args": args})

    def call(self, name, begin, end, tid=MAIN):
        self.correlation += 1
        self.event("cuda_driver" if name.startswith("cuM") else "cuda_runtime", name, begin, end, tid,
                   correlation=self.correlation)
        return self.correlation

    def work(self, begin, end, correlation):
        common = dict(device=0, context=1, stream=7, correlation=correlation)
        if correlation is not None and self.r.random() < 0.1:
            self.event("gpu_memset", "Memset (Device)", begin, end, 7, pid=0, bytes=64, **common)
        else:
            self.event("kernel", self.r.choice(["gemm", "relu"]), begin, end, 7, pid=0, **common)
        self.gpu = end

    def piece(self, kind, begin, length):
        """What the host does from begin on; returns {kind: ns} of it."""
        r, end = self.r, begin + length
        if kind == "operator":
            self.event("cpu_op", r.choice(["aten::mm", "aten::add"]), begin, end, MAIN)
            if length > 900 and r.random() < 0.5:  # Nested: the operator's own time, and a call's.
                inside = begin + length // 3
                self.call("cudaEventQuery", inside, inside + length // 3)
                return {"operator": length - length // 3, "call": length // 3}
            return {"operator": length}
        if kind == "between":
            if r.random() < 0.5:
                self.event("user_annotation", "tokenize", begin, end, MAIN)
            return {"between": length}
        if kind == "input":
            self.event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, end, MAIN)
            if length > 900:  # Whatever it does inside is input.
                self.event("cpu_op", "aten::stack", begin + length // 4, end - length // 4, MAIN)
                self.call("cudaHostAlloc", begin + length // 3, begin + length // 2)
            return {"input": length}
        if kind == "memory":
            self.call(r.choice(["cudaMalloc", "cudaFree", "cudaHostAlloc"]), begin, end)
            return {"memory": length}
        if kind == "call":
            self.call(r.choice(["cudaEventQuery", "cudaGetDeviceProperties"]), begin, end)
            return {"call": length}
        if kind == "load":
            self.call(r.choice(["cuModuleLoadData", "cuModuleLoadFatBinary"]), begin, end)
            return {"load": length}
        if kind == "copy_call":  # Launches nothing that the trace holds: a copy of no bytes.
            self.call("cudaMemcpyAsync", begin, end)
            return {"launch": length}
        if kind == "launch":
            self.call("cudaLaunchKernel", begin, end)
            return {"launch": length}
        if kind == "communication":
            self.event("user_annotation", "gloo:all_reduce", begin, end, MAIN)
            return {"communication": length}
        assert kind == "backward"  # The launching thread is another one, and waits for this operator of the main thread.
        self.event("cpu_op", "aten::ones_like", begin, end, MAIN)
        return {"operator": length}

    def host_pieces(self, begin, count):
        r, now, parts, launched_by = self.r, begin, collections.Counter(), MAIN
        for _ in range(count):
            kind = r.choices(self.kinds, [self.shape[k] for k in self.kinds])[0]
            length = r.choice([1, 300, 1_000, 7_001, 45_000, 150_000, 900_000])
            parts.update(self.piece(kind, now, length))
            now += length
            launched_by = OTHER if kind == "backward" else launched_by
        return now, parts, launched_by

    def gap(self):
        """The next gap: its parts, the launch that ends it and the work behind."""
        r, begin, parts = self.r, self.gpu, collections.Counter()
        what = r.random()
        if what < 0.15:  # Launched in time: the call ended before the GPU was done.
            length = min(600, begin - self.host)
            correlation = self.call("cudaLaunchKernel", self.host, self.host + length)
            self.host += length
            start = r.choice([1, 900, 30_000])
            stuck = r.choice([0, 0, 5_000, 400_000]) if start == 30_000 else 0
            parts.update(start=start, not_started=stuck)
            end = begin + start + stuck
        elif what < 0.3 and begin >= self.host:  # A copy from pageable memory: the host stages it in the call.
            staging = r.choice([900, 40_000])
            now, pieces, _ = self.host_pieces(begin, r.randint(0, 2))
            end = now + staging
            parts.update(pieces)
            parts.update(copy=staging)
            correlation = self.call("cudaMemcpyAsync", now, end + 500)
            self.host = end + 500
            self.truth[begin] = +parts
            self.event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", end, end + 700, 7, pid=0, bytes=64, device=0,
                       context=1, stream=7, correlation=correlation)
            self.gpu = end + 700
            return
        elif what < 0.4 and self.two_devices and begin - self.host > 3_000:
            # Launched in time, but its stream waits for the other device.
            until, start = begin + r.choice([700, 250_000]), r.choice([0, 1_500])
            remote = self.call("cudaLaunchKernel", self.host, self.host + 500)
            begin_there = max(self.host + 600, self.free_there)
            until = max(until, begin_there + 100)
            self.event("kernel", "remote", begin_there, until, 9, pid=1, device=1, context=2, stream=9, correlation=remote)
            self.free_there = until
            record = self.call("cudaEventRecord", self.host + 600, self.host + 700)
            wait = self.call("cudaStreamWaitEvent", self.host + 800, self.host + 900)
            self.event("cuda_sync", "Stream Wait Event", self.host + 820, self.host + 880, 7, pid=0, device=0, context=1,
                       correlation=wait, stream=7, cuda_sync_kind="Stream Wait Event", wait_on_stream=9,
                       wait_on_cuda_event_record_corr_id=record, wait_on_cuda_event_id=3)
            correlation = self.call("cudaLaunchKernel", self.host + 1_000, self.host + 1_500)
            self.host += 1_500
            parts.update(stream_wait=until - begin, start=start)
            end = until + start
        elif what < 0.45:  # The launching call is not in the trace.
            end, correlation = begin + r.choice([500, 60_000]), 10**6 + self.correlation
            parts.update(launch_unknown=end - begin)
        else:
            waits = r.random() < 0.35
            now = begin
            if waits:  # Until here the host was waiting; its return is the wait's doing.
                now += r.choice([0, 400, 8_000])
                name, extra = r.choice([("cudaStreamSynchronize", "sync"), ("cudaDeviceSynchronize", "sync"), ("cudaFree", "memory")])
                self.call(name, max(self.host, begin - r.choice([100, 90_000])), now)
                parts[extra] += now - begin
            elif self.host < begin:  # The host was busy with an operator that the gap begins in.
                tail = r.choice([0, 3_000])
                self.event("cpu_op", "aten::copy_", self.host, begin + tail, MAIN)
                parts["operator"] += tail
                now += tail
            now, pieces, thread = self.host_pieces(now, r.randint(0, 4))
            parts.update(pieces)
            launching, start = r.choice([800, 5_000]), r.choice([0, 2_000, 29_999])
            correlation = self.call("cudaLaunchKernel", now, now + launching, thread)
            delayed = extra if waits else None
            parts[delayed or "launch"] += launching
            parts[delayed or "start"] += start
            self.host, end = now + launching, now + launching + start
        self.truth[begin] = +parts
        self.work(end, end + r.choice([1_000, 20_000, 300_000]), correlation)

    def input_loop(self):
        """The next step, of a program that loads its input itself: what comes before its forward pass."""
        r, begin = self.r, self.gpu
        parts = collections.Counter()
        now = max(begin, self.host) + 1_000  # The step before ends in Python.
        parts["between"] = now - begin
        loading = r.choice([400, 70_000, 2_000_000])
        self.event("user_annotation", "Optimizer.step#SGD.step", now, now + 500, MAIN)
        parts["between"] += 500
        now += 500
        decode = r.choice([0, loading // 2])
        if decode:
            self.event("cpu_op", "aten::to", now + 10, now + 10 + decode - 20, MAIN)
        parts["before_forward"] = loading
        now += loading
        self.event("cpu_op", "aten::conv2d", now, now + 4_000, MAIN)
        correlation = self.call("cudaLaunchKernel", now + 1_000, now + 2_000)
        parts["operator"] += 1_000
        parts["launch"] += 1_000
        start = r.choice([0, 2_500])
        parts["start"] += start
        self.host = now + 4_000
        self.truth[begin] = +parts
        end = now + 2_000 + start
        self.event("kernel", "conv", end, end + 9_000, 7, pid=0, device=0, context=1, stream=7, correlation=correlation)
        self.gpu = end + 9_000

    def make(self, rank, ranks):
        self.event("cpu_op", "aten::empty", self.host, self.host + 10, MAIN)
        self.host += 10
        correlation = self.call("cudaLaunchKernel", self.host, self.host + 500)
        self.host += 500
        self.free_there = self.host + 3_000  # Nothing runs before: the window begins here.
        self.event("kernel", "first", self.host + 3_000, self.host + 90_000, 7, pid=0, device=0, context=1, stream=7,
                   correlation=correlation)  # Without any kernel it would be a rank without a GPU.
        self.gpu = self.host + 90_000
        for _ in range(self.r.randint(2, 6)):
            if self.loop and self.gpu > self.host and self.r.random() < 0.5:
                self.input_loop()
            else:
                self.gap()
        while self.threads.random() < 0.6:  # What other threads communicate meanwhile is none of these parts.
            begin = self.threads.randrange(BEGIN, self.gpu)
            self.event("user_annotation", "gloo:broadcast", begin, begin + self.threads.choice([300, 60_000, 700_000]), GLOO)
        # A first rank without a number of its own would be all there is.
        return {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
                "traceEvents": self.events, "traceName": "mixture"}


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("work")
    parser.add_argument("--ranks", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--oracle", type=int, default=50)
    parser.add_argument("--gaps", type=int, default=0, help="what the oracle must judge at least")
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    traces, place = os.path.join(args.work, "traces"), os.path.join(args.work, "run")
    os.makedirs(traces)
    mixtures = [Mixture(args.seed * 100_003 + rank) for rank in range(args.ranks)]
    for rank, mixture in enumerate(mixtures):
        with open(os.path.join(traces, f"rank{rank}.json"), "w") as f:
            f.write(json.dumps(mixture.make(rank, args.ranks)))
    run(args.lockstep, "import", "kineto", traces, "-o", place, "--quiet")
    run(args.lockstep, "analyze", place, "--quiet", "--no-replay")
    checker = gpu_tables.Checker(args.lockstep, place)
    bad, gaps, kinds = [], 0, collections.Counter()
    by_rank = collections.defaultdict(list)
    for row in checker.all_rows("idle-gaps"):
        if row["device"] == 0:
            by_rank[row["rank"]].append(row)
    for rank, mixture in enumerate(mixtures):
        rows = sorted(by_rank[rank], key=lambda row: row["begin_ns"])
        got = {}
        for row in rows:
            parts = {c[:-3]: v for c, v in row.items() if c.endswith("_ns") and c[:-3] not in ("at", "gap", "begin", "of_it") and v}
            got[row["begin_ns"] - rows[0]["begin_ns"]] = parts
        first = min(mixture.truth)
        want = {begin - first: dict(parts) for begin, parts in mixture.truth.items()}
        gaps += len(want)
        for parts in want.values():
            kinds.update(parts.keys())
        for begin in sorted(set(got) | set(want)):
            if got.get(begin) != want.get(begin):
                bad.append(f"rank {rank}, gap at {begin}: {got.get(begin)}, put in {want.get(begin)}")
    judged = sorted(checker.files)[:args.oracle]
    judged_gaps = sum(len(mixtures[number].truth) for number in judged)
    for number in judged:
        checker.check_rank(number)
    bad += checker.bad
    for line in bad[:20]:
        print(line)
    missing = {"operator", "between", "input", "before_forward", "memory", "sync", "call", "load", "launch", "communication",
               "start", "not_started", "launch_unknown", "copy", "stream_wait"} - set(kinds)
    print(f"{gaps} gaps of {args.ranks} mixtures; the oracle judged {judged_gaps} of them, {checker.compared} values; "
          f"{len(bad)} differ; {dict(kinds)}")
    if judged_gaps < args.gaps:
        print(f"the oracle judged fewer than {args.gaps} gaps")
        bad.append("too few gaps")
    shutil.rmtree(args.work)
    return 1 if bad or missing or checker.compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
