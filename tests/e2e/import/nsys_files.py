"""Recorded runs as Nsight Systems would have exported them: SQLite files made of rank files.

write(path, ranks, style=..) puts ranks ({rank: jobs.RankFile}) into one file, as several processes of one session if
there are several. The tables and columns are those of NVIDIA's "SQLite Schema Reference" (2021.5, 2025) and of exports
of Nsight Systems 2022.4.2, which was run on MPI programs; GPU tables are by the document alone. Styles:

2021  no table says which version it was; MPI's calls are NVTX ranges of the domain MPI, without arguments
2022  EXPORT_META_DATA; MPI as in 2021; "MPI Rank 3" is the name of a thread
2024  META_DATA_EXPORT, MPI_RANKS and tables of MPI's calls with sizes, handles and requests
2025  as 2024, with numbers of communicators that are the same on all ranks, and further columns
"""
import json
import os
import sqlite3

NONE, NO_TIME = 0xffffffff, -2**63
WALL = 1_700_000_000_000_000_000  # What make_run's realtime clock adds to the rank's.
COPY_KINDS = {0: 0, 1: 1, 2: 2, 3: 8, 4: 10, 5: 9}
HOST_MEMORY = {0: 2, 1: 0, 2: 1, 3: 4}
NCCL = {1: "AllReduce", 2: "AllGather", 3: "ReduceScatter", 4: "AlltoAll", 6: "Broadcast", 7: "Reduce"}

KERNEL = """start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, %s
streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
shortName INTEGER NOT NULL, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL,
gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL,
blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,
gridId INTEGER NOT NULL"""
GREEN = "greenContextId INTEGER,"
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": """start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, %s streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER,
        srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER""",
    "CUPTI_ACTIVITY_KIND_MEMSET": """start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, %s streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        value INTEGER NOT NULL, bytes INTEGER NOT NULL""",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": """start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, %s streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        syncType INTEGER NOT NULL, eventId INTEGER NOT NULL""",
    "CUPTI_ACTIVITY_KIND_RUNTIME": """start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, %s
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL""",
    "NVTX_EVENTS": """start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
        category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
        domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
        int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT %s""",
    "MPI_P2P_EVENTS": """start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER, commHandle INTEGER, %s
        tag INTEGER, remoteRank INTEGER, size INTEGER, requestHandle INTEGER""",
    "MPI_COLLECTIVES_EVENTS": """start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER,
        commHandle INTEGER, %s rootRank INTEGER, size INTEGER, recvSize INTEGER, requestHandle INTEGER""",
    "MPI_START_WAIT_EVENTS": "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER, %s requestHandle INTEGER",
    "MPI_OTHER_EVENTS": "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, %s textId INTEGER",
    "MPI_RANKS": "globalTid INTEGER NOT NULL, %s rank INTEGER NOT NULL",
    "MPI_COMMUNICATORS": """rank INTEGER, timestamp INTEGER, commHandle INTEGER, parentHandle INTEGER,
        localRank INTEGER, %s size INTEGER, groupRoot INTEGER, groupRootUid INTEGER, members TEXT""",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, %s globalTid INTEGER",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, %s name TEXT",
    "TARGET_INFO_GPU": """vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER, smCount INTEGER,
        maxWarpsPerSm INTEGER, threadsPerWarp INTEGER, %s computeMajor INTEGER, computeMinor INTEGER""",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, %s uuid TEXT",
    "TARGET_INFO_SYSTEM_ENV": """globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,
        nameEnum INTEGER NOT NULL, %s value TEXT NOT NULL""",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, %s localTime TEXT",
    "ANALYSIS_DETAILS": "globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL, %s stopTime INTEGER NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, %s value TEXT",
    "EXPORT_META_DATA": "name TEXT NOT NULL, %s value TEXT",
}
COMM_UID = {"MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS"}
WITH_GREEN = {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
              "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"}


def global_id(pid, tid=0):
    return 1 << 48 | pid << 24 | tid


class File:
    """Tables come into being with their first row, as nsys makes them."""

    def __init__(self, path, style):
        self.style = style
        if os.path.exists(path):
            os.remove(path)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        self.db = sqlite3.connect(str(path))
        self.db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        self.ids, self.known = {}, set()

    def string(self, text):
        if text not in self.ids:
            self.ids[text] = len(self.ids) + 7
            self.db.execute("INSERT INTO StringIds VALUES (?, ?)", (self.ids[text], text))
        return self.ids[text]

    def row(self, table, **values):
        if table not in self.known:
            self.known.add(table)
            more = ""
            if self.style >= "2025":
                more = GREEN if table in WITH_GREEN else "commUid INTEGER," if table in COMM_UID else ""
                if table == "NVTX_EVENTS":
                    more = ", binaryData TEXT, eventId INTEGER NOT NULL PRIMARY KEY"
            self.db.execute(f"CREATE TABLE {table} ({TABLES[table] % more})")
        names = ", ".join(values)
        self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", tuple(values.values()))

    def close(self):
        self.db.commit()
        self.db.close()


def write(path, ranks, style="2024", pid=5000, host="node0", nccl="payload", steps="step %d", environment="",
          told=True, wall=WALL, only=None, mpi_handles=None):
    """`told`: MPI's ranks are there. `nccl`: "payload", "ranges" or "none". `steps`: how they are called, None: not at
    all. `only`: tables that are left in."""
    file = File(path, style)
    old_mpi = style < "2024"
    start = min(int(min(r.column("threads", "begin_ns"))) for r in ranks.values()) - 1_000_000
    if wall is not None:
        file.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=wall + start, utcTime="", localTime="")
    if style >= "2022":
        meta = "EXPORT_META_DATA" if style < "2024" else "META_DATA_EXPORT"
        file.row(meta, name="EXPORT_PRODUCT_VERSION", value=style + ".1.1")
        file.row(meta, name="EXPORT_SCHEMA_VERSION", value="3.0.0")
    file.row("TARGET_INFO_SYSTEM_ENV", globalVid=1 << 48, devStateName="", name="Hostname", nameEnum=1, value=host)
    file.row("TARGET_INFO_SYSTEM_ENV", globalVid=1 << 48, devStateName="", name="DeviceEnvironment", nameEnum=2,
             value=environment)
    file.row("ANALYSIS_DETAILS", globalVid=1 << 48, duration=1, startTime=0, stopTime=1)
    file.row("PROCESSES", globalPid=global_id(1), pid=1, name="init")
    gpus = set()
    for at, (rank, run) in enumerate(sorted(ranks.items())):
        _rank(file, run, rank, pid + at, start, nccl, steps, told, old_mpi, gpus, mpi_handles)
    if only is not None:
        for (table,) in file.db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
            if table not in only:
                file.db.execute(f"DROP TABLE {table}")
    file.close()
    return path


def _rank(file, run, rank, pid, start, nccl, steps, told, old_mpi, gpus, mpi_handles):
    process = global_id(pid)
    tids = [pid if t else pid + 100 + i for i, t in enumerate(run.column("threads", "training"))]
    tid = lambda row: global_id(pid, tids[int(row)]) if int(row) < len(tids) else global_id(pid, pid)
    main = tid(next(i for i, t in enumerate(run.column("threads", "training")) if t))
    ns = lambda t: int(t) - start
    rows = lambda name: [dict(zip(run.tables[name], values)) for values in zip(*run.tables[name].values())] \
        if run.tables[name] else []
    text = lambda i: run.text(int(i)) or "?"
    file.row("PROCESSES", globalPid=process, pid=pid, name="/usr/bin/python3")
    file.row("ThreadNames", nameId=file.string("python3"), priority=0, globalTid=main)

    shapes = rows("kernel_shapes")
    kernels = rows("kernels")
    for i, k in enumerate(kernels):
        shape = shapes[int(k["shape"])] if int(k["shape"]) < len(shapes) else None
        grid = {}
        for axis in "xyz":
            grid["grid" + axis.upper()] = int(shape["grid_" + axis]) if shape else 1
            grid["block" + axis.upper()] = int(shape["block_" + axis]) if shape else 32
        name = text(k["name"])
        file.row("CUPTI_ACTIVITY_KIND_KERNEL", start=ns(k["begin_ns"]), end=ns(k["begin_ns"]) + int(k["duration_ns"]),
                 deviceId=int(k["device"]), contextId=int(k["context"]), streamId=int(k["stream"]),
                 correlationId=int(k["correlation"]), globalPid=process, demangledName=file.string(name),
                 shortName=file.string(name.split("(")[0]), registersPerThread=64, staticSharedMemory=0,
                 dynamicSharedMemory=0, localMemoryPerThread=0, localMemoryTotal=0, gridId=i, **grid)
    for c in rows("copies"):
        common = dict(start=ns(c["begin_ns"]), end=ns(c["begin_ns"]) + int(c["duration_ns"]), deviceId=int(c["device"]),
                      contextId=int(c["context"]), streamId=int(c["stream"]), correlationId=int(c["correlation"]),
                      globalPid=process, bytes=int(c["bytes"]))
        if int(c["kind"]) == 6:
            file.row("CUPTI_ACTIVITY_KIND_MEMSET", value=0, **common)
        else:
            host = HOST_MEMORY[int(c["host_memory"])]
            kind = int(c["kind"])
            file.row("CUPTI_ACTIVITY_KIND_MEMCPY", copyKind=COPY_KINDS[kind], srcKind=host if kind == 1 else 2,
                     dstKind=host if kind == 2 else 2, **common)
    for s in rows("sync"):
        if 1 <= int(s["kind"]) <= 4:
            file.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=ns(s["begin_ns"]),
                     end=ns(s["begin_ns"]) + int(s["duration_ns"]), deviceId=int(s["device"]),
                     contextId=int(s["context"]), streamId=int(s["stream"]), correlationId=int(s["correlation"]),
                     globalPid=process, syncType=int(s["kind"]), eventId=int(s["event"]))
    calls = {}
    for a in rows("api"):
        calls[int(a["correlation"])] = a
        file.row("CUPTI_ACTIVITY_KIND_RUNTIME", start=ns(a["begin_ns"]), end=ns(a["begin_ns"]) + int(a["duration_ns"]),
                 eventClass=0, globalTid=tid(a["thread"]), correlationId=int(a["correlation"]),
                 nameId=file.string(text(a["name"]) + "_v7000"), returnValue=int(a["result"]))
    for d in rows("devices"):
        key = (rank, int(d["device"]))
        file.row("TARGET_INFO_GPU", vmId=1 << 48, id=rank, name=text(d["name"]), totalMemory=int(d["memory_bytes"]),
                 smCount=int(d["sm_count"]), maxWarpsPerSm=int(d["max_threads_per_sm"]) // 32, threadsPerWarp=32,
                 computeMajor=int(d["compute_major"]), computeMinor=int(d["compute_minor"]))
        file.row("TARGET_INFO_CUDA_DEVICE", gpuId=rank, cudaId=key[1], pid=pid, uuid="")

    nvtx = lambda **v: file.row("NVTX_EVENTS", **v)
    for r in rows("ranges"):
        begin = ns(r["begin_ns"])
        kind = {0: 59, 1: 60, 2: 34}[int(r["kind"])]
        registered = len(text(r["name"])) % 2 == 0
        nvtx(start=begin, end=None if kind == 34 else begin + int(r["duration_ns"]), eventType=kind,
             text=None if registered else text(r["name"]), textId=file.string(text(r["name"])) if registered else None,
             globalTid=tid(r["thread"]), domainId=0)
    for s in rows("steps"):
        if steps is not None:
            nvtx(start=ns(s["begin_ns"]), end=ns(s["end_ns"]), eventType=59,
                 text=steps % int(s["index"]) if "%" in steps else steps, globalTid=main, domainId=0)
    comms = rows("comms")
    if nccl != "none" and any(int(c["mode"]) == 3 for c in rows("collectives")):
        nvtx(start=0, end=None, eventType=75, text="NCCL", globalTid=main, domainId=3)
        for c in comms if nccl == "payload" else ():
            nvtx(start=100, end=200, eventType=59, textId=file.string("ncclCommInitRank"), globalTid=main, domainId=3,
                 jsonText=json.dumps({"NCCL communicator ID": int(c["global_id"]), "No. of ranks": int(c["size"]),
                                      "Rank": int(c["rank"]), "CUDA device": 0}))
        for c in rows("collectives"):
            kernel = kernels[int(c["kernel"])] if int(c["kernel"]) < len(kernels) else None
            call = calls.get(int(kernel["correlation"])) if kernel else None
            if call is None or int(c["kind"]) not in NCCL:
                continue
            # One member's message, as NCCL says it.
            members = int(comms[int(c["comm"])]["size"])
            size = int(c["bytes"]) // (members if int(c["kind"]) in (2, 3) else 1)
            payload = json.dumps({"NCCL communicator ID": int(comms[int(c["comm"])]["global_id"]),
                                  "Message size [bytes]": size, "Reduction operation": "Sum"})
            nvtx(start=ns(call["begin_ns"]), end=ns(call["begin_ns"]) + int(call["duration_ns"]) - 1, eventType=59,
                 textId=file.string("nccl" + NCCL[int(c["kind"])]), globalTid=tid(call["thread"]),
                 domainId=3, jsonText=payload if nccl == "payload" else None)
    _mpi(file, run, rank, pid, rows, ns, tid, main, told, old_mpi, mpi_handles)


def _mpi(file, run, rank, pid, rows, ns, tid, main, told, old_mpi, mpi_handles):
    import jobs
    calls = rows("mpi_calls")
    names = {number: name for name, number in jobs.mpi_ops().items()}
    if not calls:
        if told and not old_mpi:
            file.row("MPI_RANKS", globalTid=main, rank=rank)
        return
    if old_mpi:
        file.row("NVTX_EVENTS", start=0, end=None, eventType=75, text="MPI", globalTid=main, domainId=1)
        if told:
            file.row("NVTX_EVENTS", start=1, end=None, eventType=39, text=f"MPI Rank {rank}", globalTid=main, domainId=0)
        for c in calls:
            file.row("NVTX_EVENTS", start=ns(c["begin_ns"]), end=ns(c["begin_ns"]) + int(c["duration_ns"]),
                     eventType=59, textId=file.string(names[int(c["op"])]), globalTid=tid(c["thread"]), domainId=1)
        return
    if told:
        file.row("MPI_RANKS", globalTid=main, rank=rank)
    comms = rows("comms")
    handle = lambda c: (mpi_handles or (lambda comm: 0x55500000 + 4096 * rank + comm))(int(c))
    for i, c in enumerate(comms):
        if told and int(c["kind"]) == 0:
            file.row("MPI_COMMUNICATORS", rank=rank, timestamp=0, commHandle=handle(i), parentHandle=0,
                     localRank=int(c["rank"]), size=int(c["size"]), groupRoot=0, groupRootUid=i, members="")
    uid = lambda c: {"commUid": int(c) + 1} if file.style >= "2025" else {}
    # An operation's request: handles are used again once they are free.
    operation, waits, free, next_handle = {}, {}, [], [0x1000]
    for table in ("collectives", "p2p"):
        for o in rows(table):
            operation[int(o["call"])] = (table, o)
    posts = sorted((int(o["begin_ns"]), int(o["wait_begin_ns"]), int(o["call"])) for t, o in operation.values()
                   if int(o["mode"]) == 1)
    request, busy = {}, []
    for begin, wait, call in posts:
        done = [b for b in busy if b[0] != NO_TIME and b[0] < begin]
        if done:
            busy.remove(done[0])
            request[call] = done[0][1]
        else:
            request[call] = next_handle[0]
            next_handle[0] += 16
        busy.append((wait, request[call]))
        waits.setdefault(wait, []).append(request[call])
    for i, c in enumerate(calls):
        name = names[int(c["op"])]
        common = dict(start=ns(c["begin_ns"]), end=ns(c["begin_ns"]) + int(c["duration_ns"]), globalTid=tid(c["thread"]),
                      textId=file.string(name))
        if i in operation and operation[i][0] == "collectives":
            o = operation[i][1]
            members = int(comms[int(o["comm"])]["size"])
            size = int(o["bytes"]) // (members if int(o["kind"]) in (2, 8) else 1)
            file.row("MPI_COLLECTIVES_EVENTS", commHandle=handle(o["comm"]), rootRank=int(o["root"]), size=size,
                     recvSize=size // (members if int(o["kind"]) in (3, 9) else 1), requestHandle=request.get(i), **uid(o["comm"]), **common)
        elif i in operation and name not in ("MPI_Sendrecv", "MPI_Sendrecv_replace"):
            o = operation[i][1]
            file.row("MPI_P2P_EVENTS", commHandle=handle(o["comm"]), tag=int(o["tag"]), remoteRank=int(o["peer"]),
                     size=int(o["bytes"]), requestHandle=request.get(i), **uid(o["comm"]), **common)
        elif name == "MPI_Sendrecv":
            file.row("MPI_P2P_EVENTS", commHandle=handle(c["comm"]), tag=int(c["tag"]), remoteRank=int(c["peer"]),
                     size=int(c["bytes"]), requestHandle=None, **uid(c["comm"]), **common)
        elif name.startswith(("MPI_Wait", "MPI_Test")):
            for one in waits.get(int(c["begin_ns"]), [None]):
                file.row("MPI_START_WAIT_EVENTS", requestHandle=one, **common)
        else:
            file.row("MPI_OTHER_EVENTS", **common)
