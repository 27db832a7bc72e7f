#!/usr/bin/env python3
"""A random trace of torch.profiler, small and nasty: several streams, devices and host
threads, syncs, blocking copies, graphs, HIP, equal times, clocks that disagree.

  random_kineto.py SEED FILE
"""

import json
import random
import sys


class Trace:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.events, self.correlation = [], 100
        self.hip = self.r.random() < 0.2
        self.whole_us = self.r.random() < 0.3  # Equal times and rounding, as older traces have them.
        self.syncs = self.r.random() < 0.5     # cuda_sync events beside the calls.
        self.waits = random.Random(seed ^ 0x77a17).random() < 0.6  # Streams wait for events, and the trace says for which.
        self.syncs |= self.waits
        self.records = []                      # (correlation, stream, when what it waits for is done)
        self.streams = [(d, s) for d in range(1 + (self.r.random() < 0.2)) for s in self.r.sample([7, 20, 24, 28], self.r.randint(1, 3))]
        self.free = {stream: 0 for stream in self.streams}
        self.threads = [11] + ([12] if self.r.random() < 0.6 else [])
        self.steps = self.r.randint(0, 3)
        self.bare = random.Random(seed ^ 0x0b5).random() < 0.2
        self.loads = random.Random(seed ^ 0x10ad).random() < 0.5
        self.heavy = self.r.choice([1, 1, 8, 30])  # How much longer GPU work takes: who waits for whom.

    def us(self, ns):
        return ns // 1000 if self.whole_us else ns / 1000

    def event(self, cat, name, begin, end, tid, pid=1, **args):
        begin, end = (begin // 1000 * 1000, end // 1000 * 1000) if self.whole_us else (begin, end)
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": self.us(begin),
                            "dur": self.us(end - begin), "args": args})

    def on_gpu(self, call_end, correlation, stream, length, copy=None):
        """Starts when launched and its stream is free; returns its end."""
        device, number = stream
        start = max(call_end + self.r.choice([-300, 0, 500, 2_000]), self.free[stream] + self.r.choice([0, 0, 800, 3_000]))
        if self.r.random() < 0.1:  # Waits for another stream.
            start = max(start, max(self.free.values()) + self.r.choice([0, 900]))
        if self.r.random() < 0.03:
            start += 200_000
        if self.r.random() < 0.03:
            start = call_end - 20_000  # Clocks disagree.
        end = start + length
        common = dict(device=device, context=1, stream=number, correlation=correlation)
        if copy is None:
            name = self.r.choice(["gemm", "relu", "elementwise", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"])
            self.event("kernel", name, start, end, number, pid=device, **common)
        elif copy == "Memset (Device)":
            self.event("gpu_memset", copy, start, end, number, pid=device, bytes=self.r.randint(1, 10**6), **common)
        else:
            self.event("gpu_memcpy", copy, start, end, number, pid=device, bytes=self.r.randint(1, 10**6), **common)
        self.free[stream] = max(self.free[stream], end)
        return end

    def call(self, name, begin, end, tid):
        self.correlation += 1
        if self.hip:
            name = name.replace("cuda", "hip").replace("cu", "hip", 1) if name.startswith("cu") else name
        self.event("cuda_driver" if name.startswith("cuL") else "cuda_runtime", name, begin, end, tid,
                   correlation=self.correlation)
        return self.correlation

    def event_calls(self, now, tid):
        """Records, waits of streams for them, waits of the host; some for records that the trace does not hold."""
        r = self.r
        for _ in range(r.randint(1, 3)):
            stream = r.choice(self.streams)
            correlation = self.call("cudaEventRecord", now, now + 300, tid)
            self.records.append((correlation, stream, self.free[stream]))
            now += 400
        for _ in range(r.randint(1, 3)):
            record, recorded, done = r.choice(self.records[-5:])
            stream = r.choice(self.streams)
            if r.random() < 0.1:
                record, recorded = r.choice([(-1, (0, -1)), (5, recorded), (self.correlation + 50, recorded)])
            waited = dict(wait_on_stream=recorded[1], wait_on_cuda_event_record_corr_id=record, wait_on_cuda_event_id=3)
            if r.random() < 0.75:
                end = now + 300
                correlation = self.call("cudaStreamWaitEvent", now, end, tid)
                self.event("cuda_sync", "Stream Wait Event", now + 100, now + 200, stream[1], pid=stream[0], device=stream[0],
                           context=1, correlation=correlation, stream=stream[1], cuda_sync_kind="Stream Wait Event", **waited)
                if r.random() < 0.9:  # Else the trace tells nonsense.
                    self.free[stream] = max(self.free[stream], done)
            else:
                end = max(now + 700, done + r.choice([-1_000, 500]))
                correlation = self.call("cudaEventSynchronize", now, end, tid)
                self.event("cuda_sync", "Event Sync", now + 300, end - 200, -1, pid=recorded[0], device=recorded[0],
                           context=1, correlation=correlation, stream=-1, cuda_sync_kind="Event Sync", **waited)
            now = end
        return now

    def operator(self, now, tid, depth=0):
        r = self.r
        begin, name = now, r.choice(["aten::mm", "aten::copy_", "aten::add", "aten::item", "aten::empty"])
        now += r.choice([0, 500, 2_000, 9_000])
        for _ in range(r.randint(0, 3)):
            stream, length = r.choice(self.streams), self.heavy * r.choice([0, 1_000, 4_000, 12_000, 60_000])
            what = r.random()
            if depth < 2 and what < 0.2:
                now = self.operator(now, tid, depth + 1)
            elif what < 0.65:
                end = now + r.choice([1_000, 4_000, 70_000 if r.random() < 0.1 else 3_000])
                correlation = self.call(r.choice(["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel"]), now, end, tid)
                self.on_gpu(end, correlation, stream, length)
                now = end
            elif what < 0.72:
                end = now + 6_000
                correlation = self.call("cudaGraphLaunch", now, end, tid)
                for _ in range(r.randint(1, 4)):
                    self.on_gpu(end, correlation, r.choice(self.streams), length)
                now = end
            elif what < 0.85:
                name_of = r.choice(["Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)", "Memset (Device)",
                                    "Memcpy DtoH (Device -> Pageable)"])
                end = now + 3_000
                self.correlation += 1
                ended = self.on_gpu(end, self.correlation, stream, length, name_of)
                if "Pageable" in name_of:
                    end = max(end, ended + 1_000)
                self.correlation -= 1
                self.call("cudaMemsetAsync" if "Memset" in name_of else "cudaMemcpyAsync", now, end, tid)
                now = end
            elif what < 0.93:
                everything = r.random() < 0.4
                until = max(self.free.values()) if everything else self.free[stream]
                end = max(now + 1_500, until + r.choice([-1_000, 500, 5_000]))
                correlation = self.call("cudaDeviceSynchronize" if everything else "cudaStreamSynchronize", now, end, tid)
                if self.syncs:
                    self.event("cuda_sync", "Context Sync" if everything else "Stream Sync", now + 300, end - 200,
                               stream[1], pid=stream[0], device=stream[0], context=1, correlation=correlation,
                               stream=-1 if everything else stream[1],
                               cuda_sync_kind="Context Sync" if everything else "Stream Sync")
                now = end
            else:
                length = r.choice([400, 400, 40_000])
                self.call(r.choice(["cudaEventQuery", "cudaMalloc", "cudaFree", "cuModuleLoadData", "cudaHostAlloc"]), now,
                          now + length, tid)
                now += length
            if self.waits and r.random() < 0.25:
                now = self.event_calls(now, tid)
            now += r.choice([0, 300, 2_000])
        end = now + r.choice([0, 1_000, 30_000])
        self.event("cpu_op", name, begin, end, tid)
        return end

    def make(self):
        r, now = self.r, 1_000_000
        for step in range(max(self.steps, 1)):
            begin = now
            if self.loads and r.random() < 0.5:
                self.event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", now,
                           now + 40_000, 11)
                now += 41_000
            for tid in self.threads:  # One after the other: forward, backward.
                phase = now
                for _ in range(r.randint(1, 6)):
                    now = self.operator(now, tid) + r.choice([0, 1_000, 25_000])
                if r.random() < 0.4:
                    self.event("user_annotation", r.choice(["Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad",
                                                            "forward", "backward", "tokenize", "train"]), phase, now, tid)
            if self.steps:
                self.event("user_annotation", f"ProfilerStep#{step + 5}", begin, now, 11)
                now += 500
        if r.random() < 0.3:  # Launched before the trace began, or lost.
            until = r.choice([1_000_000, 1_400_000]) / 1000
            self.events = [e for e in self.events if e["cat"] not in ("cuda_runtime", "cuda_driver") or
                           (e["ts"] >= until and r.random() < 0.95)]
        if self.bare:  # A trace without operators.
            self.events = [e for e in self.events if e["cat"] != "cpu_op"]
        r.shuffle(self.events)
        return {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
                "traceEvents": self.events, "traceName": "random"}


def main():
    seed, path = int(sys.argv[1]), sys.argv[2]
    with open(path, "w") as f:
        json.dump(Trace(seed).make(), f)


if __name__ == "__main__":
    main()
