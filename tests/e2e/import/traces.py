"""Traces as torch.profiler writes them, made by hand: small jobs whose answers are known."""

import gzip
import json
import os

STEP_US = 10_000


class Trace:
    """One rank's trace. Times are whole microseconds after `start`."""

    def __init__(self, rank, world, *, start=1_700_000_000_000_000, style="new", backend="nccl", device=None):
        self.rank, self.world, self.start, self.style = rank, world, start, style
        self.device = rank if device is None else device
        self.pid, self.tid, self.autograd = 1000 + rank, 1000 + rank, 2000 + rank
        self.stream, self.comm_stream = 7, 20
        self.correlation, self.external = 100, 1
        self.events = []
        self.facts = {"schemaVersion": 1}
        name = "AMD Instinct MI300X" if style == "rocm" else "NVIDIA H100"
        self.facts["deviceProperties"] = [{"id": self.device, "name": name, "totalGlobalMem": 80 << 30,
                                           "computeMajor": 9, "computeMinor": 0, "numSms": 132,
                                           "maxThreadsPerMultiprocessor": 2048}]
        if rank is not None and backend:
            self.facts["distributedInfo"] = {"backend": backend, "rank": rank, "world_size": world}
        self.base = 0
        if style != "old":
            self.base = 1_690_000_000_000_000_000
            self.facts["baseTimeNanoseconds"] = self.base
        for tid, label in ((self.tid, "thread %d (python3)" % self.tid), (self.autograd, "thread (pt_autograd_0)")):
            self.events.append({"name": "thread_name", "ph": "M", "ts": self.ts(0), "pid": self.pid, "tid": tid,
                                "args": {"name": label}})
        self.events.append({"name": "process_name", "ph": "M", "ts": self.ts(0), "pid": self.pid, "tid": 0,
                            "args": {"name": "python3"}})

    def ts(self, us):
        """Old files: whole microseconds since the epoch. New: with three digits, after the base."""
        if self.style == "old":
            return self.start + us
        return (self.start * 1000 - self.base) / 1000 + us

    def ns(self, us):
        return (self.start + us) * 1000

    def event(self, category, name, us, duration, tid=None, pid=None, **args):
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": self.pid if pid is None else pid,
                            "tid": self.tid if tid is None else tid, "ts": self.ts(us), "dur": duration, "args": args})

    def operator(self, name, us, duration, tid=None, **args):
        self.external += 1
        self.event("cpu_op", name, us, duration, tid, **{"External id": self.external, **args})
        return self.external

    def annotation(self, name, us, duration, tid=None, **args):
        self.external += 1
        self.event("user_annotation", name, us, duration, tid, **{"External id": self.external, **args})

    def launch(self, us, duration=4, tid=None, name=None, category="cuda_runtime", **args):
        self.correlation += 1
        name = name or ("hipLaunchKernel" if self.style == "rocm" else "cudaLaunchKernel")
        if self.style == "rocm" and "Kernel" in name:
            args = {"grid": [64, 1, 1], "block": [256, 1, 1], "shared memory": 0, **args}
        self.event(category, name, us, duration, tid, **{"cbid": 211, "correlation": self.correlation, **args})
        return self.correlation

    def kernel(self, name, us, duration, correlation, stream=None, **args):
        stream = self.stream if stream is None else stream
        common = {"device": self.device, "stream": stream, "correlation": correlation}
        if self.style != "rocm":
            common.update({"context": 1, "registers per thread": 32, "shared memory": 1024, "grid": [64, 2, 1],
                           "block": [128, 1, 1], "est. achieved occupancy %": 37})
        else:
            common["kind"] = "Dispatch Kernel"
        self.event("kernel", name, us, duration, stream, self.device, **{**common, **args})

    def copy(self, name, us, duration, bytes_, correlation, category="gpu_memcpy", **args):
        self.event(category, name, us, duration, self.stream, self.device,
                   **{"device": self.device, "context": 1, "stream": self.stream, "correlation": correlation,
                      "bytes": bytes_, **args})

    def memory(self, us, bytes_, total):
        self.events.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": self.pid,
                            "tid": self.tid, "ts": self.ts(us),
                            "args": {"Device Type": 1, "Device Id": self.device, "Addr": 140737488355328,
                                     "Bytes": bytes_, "Total Allocated": total, "Total Reserved": 1 << 30}})

    def communication(self, us, kernel_us, duration, *, what="allreduce", elements=1000, dtype="Float", name=None,
                      group=("0", "default_pg", None), tid=None, seq=None, stream=None, kernel_args=True, launch=True,
                      **more):
        """One collective as this generation of Kineto tells it."""
        tid = self.autograd if tid is None else tid
        note = {"allreduce": "nccl:all_reduce", "_allgather_base": "nccl:_all_gather_base",
                "_reduce_scatter_base": "nccl:_reduce_scatter_base", "all_to_all": "nccl:all_to_all",
                "broadcast": "nccl:broadcast", "send": "nccl:send", "recv": "nccl:recv"}.get(what, "nccl:" + what)
        kernels = {"allreduce": "AllReduce_Sum_f32_RING_LL", "_allgather_base": "AllGather_RING_LL",
                   "_reduce_scatter_base": "ReduceScatter_Sum_f32_RING_LL", "broadcast": "Broadcast_RING_LL"}
        args = {}
        if self.style != "old":
            ranks = list(range(self.world)) if group[2] is None else group[2]
            inside, outside = elements, elements
            if what == "_allgather_base":
                inside = elements // len(ranks)
            if what == "_reduce_scatter_base":
                outside = elements // len(ranks)
            args = {"Collective name": what, "dtype": dtype, "In msg nelems": inside, "Out msg nelems": outside,
                    "Group size": len(ranks), "Process Group Name": group[0], "Process Group Description": group[1],
                    "Process Group Ranks": str(ranks), "In split size": "[]", "Out split size": "[]", **more}
            if seq is not None:
                args["Seq"] = seq
        external = self.operator("record_param_comms", us, 40, tid, **args)
        shapes = {"Input Dims": [[elements]], "Input type": ["float"]} if self.style == "old" else {}
        self.annotation(note, us + 5, 30, tid, **shapes)
        if not launch:
            return
        correlation = self.launch(us + 10, 5, tid, "hipExtModuleLaunchKernel" if self.style == "rocm" else None)
        if self.style == "rocm":
            kernel = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
        else:
            kernel = "%s_%s(ncclDevComm*, unsigned long, ncclWork*)" % (
                "ncclKernel" if self.style == "old" else "ncclDevKernel", kernels.get(what, "SendRecv"))
        own = dict(args, **{"External id": external}) if self.style == "new" and kernel_args else {}
        self.kernel(name or kernel, kernel_us, duration, correlation, self.comm_stream if stream is None else stream,
                    **own)

    def document(self):
        return {**self.facts, "traceEvents": self.events, "traceName": "trace.json"}


def step(trace, number, at, late=0, seq=None):
    """One training step of 10 ms: input, forward, backward with two collectives, optimizer.
    `late`: how long after the others this rank computes."""
    trace.annotation("ProfilerStep#%d" % number, at, STEP_US - 10)
    trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 10, 200)
    trace.annotation("DistributedDataParallel.forward", at + 300, 1000)
    trace.operator("aten::linear", at + 310, 100)
    trace.operator("aten::addmm", at + 320, 80)
    trace.kernel("void gemm<float>(int, float*)", at + 400 + late, 1500, trace.launch(at + 330))
    trace.copy("Memcpy HtoD (Pinned -> Device)", at + 250, 30, 4096,
               trace.launch(at + 220, 3, name="hipMemcpyWithStream" if trace.style == "rocm" else "cudaMemcpyAsync"))
    trace.operator("autograd::engine::evaluate_function: AddmmBackward0", at + 1500, 600, trace.autograd,
                   **{"Sequence number": 7, "Fwd thread id": 1})
    trace.kernel("void gemm_backward<float>(int, float*)", at + 2000 + late, 2000,
                 trace.launch(at + 1600, tid=trace.autograd))
    # All leave together, 300 us after the last of them came.
    last = at + 4100 + 400
    begin = at + 4100 + late
    trace.communication(at + 1700, begin, last + 300 - begin, elements=1000, seq=seq)
    begin = at + 5200 + late
    trace.communication(at + 1800, begin, at + 5600 + 500 - begin, elements=250_000,
                        seq=None if seq is None else seq + 1)
    trace.annotation("Optimizer.step#SGD.step", at + 6500, 500)
    trace.kernel("void sgd<float>(float*)", at + 6600 + late, 300, trace.launch(at + 6510))
    trace.memory(at + 305, 4096, 1 << 20)
    trace.memory(at + 6490, -4096, (1 << 20) - 4096)
    wait = max(50, late - 80)  # Not before the last kernel ends.
    trace.event("cuda_sync", "Stream Sync", at + 7000, wait, trace.stream, trace.device,
                **{"cuda_sync_kind": "Stream Sync", "stream": trace.stream, "correlation":
                   trace.launch(at + 6990, wait + 30, name="cudaStreamSynchronize"), "device": trace.device, "context": 1})
    trace.event("gpu_user_annotation", "DistributedDataParallel.forward", at + 400, 1500, trace.stream, trace.device)


def job(ranks=4, steps=(10, 11, 12), style="new", seq=False, **more):
    """Traces of a DDP job: rank r computes 100 us x r later than rank 0."""
    traces = []
    for rank in range(ranks):
        trace = Trace(rank, ranks, style=style, **more)
        for i, number in enumerate(steps):
            step(trace, number, i * STEP_US, late=100 * rank, seq=1 + 2 * i if seq else None)
        traces.append(trace)
    return traces


def merged(all_traces, label=None, metadata=False, by_time=False, facts=True):
    """One file of several ranks' traces, as tools make it: one after the other, with the first one's facts.
    `label`: of a rank's processes, from its number; in `metadata`, processes keep their numbers."""
    events, document = [], {}
    for rank, trace in enumerate(all_traces):
        own = [dict(event) for event in trace.events]
        if label and metadata:
            own = [{"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": trace.ts(0),
                    "args": {"labels": "%s %s" % (label(rank), kind)}}
                   for pid, kind in ((trace.pid, "CPU"), (trace.device, "GPU %d" % trace.device))] + own
        elif label:
            for event in own:
                event["pid"] = "%s %s" % (label(rank), event["pid"])
        events += own
        for key, value in trace.facts.items() if facts else ():
            document.setdefault(key, value)
    if facts:
        document["deviceProperties"] = [device for trace in all_traces for device in trace.facts["deviceProperties"]]
    else:
        document = {"baseTimeNanoseconds": all_traces[0].base}
    if by_time:
        events.sort(key=lambda event: event["ts"])
    return {**document, "traceEvents": events}


def write(trace, path, pretty=False, squeeze=False, tail=b""):
    """Kineto's own layout has an event per line; `squeeze` is what json.dumps without blanks gives."""
    document = trace if isinstance(trace, dict) else trace.document()
    text = json.dumps(document, indent=1) if pretty else json.dumps(document, separators=(",", ":")) if squeeze \
        else json.dumps(document).replace("}, {\"ph\"", "},\n  {\"ph\"")
    data = text.encode()
    if str(path).endswith(".gz"):
        data = gzip.compress(data, 6, mtime=0)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data + tail)
    return path
