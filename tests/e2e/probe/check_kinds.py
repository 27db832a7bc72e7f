#!/usr/bin/python3
"""What the records of `kinds` must say: check_kinds.py BUILD_DIR"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import mpi_sessions  # noqa: E402, F401

build = sys.argv[1]
tool, program = os.path.join(build, "tests", "segment_tool"), os.path.join(build, "tests", "probe_kinds")
libraries = " ".join(os.path.join(build, name) for name in ("liblockstep.so", "liblockstep-mpi.so"))
failures = []


def check(value, expected, text):
    if value != expected:
        failures.append(f"{text}: {value}, expected {expected}")


with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
    for rank in range(4):
        subprocess.run([tool, "make", f"{directory}/segment-{rank}"], check=True)
    script = f'LOCKSTEP_SEGMENT={directory}/segment-$OMPI_COMM_WORLD_RANK LD_PRELOAD="{libraries}" exec {program}'
    subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", "sh", "-c", script], check=True,
                   timeout=120)
    calls, completions, comms, texts = {}, {}, {}, {}
    for rank in range(4):
        dump = subprocess.run([tool, "dump", f"{directory}/segment-{rank}"], stdout=subprocess.PIPE, text=True, check=True)
        calls[rank], completions[rank], comms[rank], texts[rank] = {}, [], {}, []
        for line in dump.stdout.splitlines():
            if line.startswith("process"):
                continue
            kind, rest = line.split(" ", 2)[2].split(" ", 1)
            fields = dict(part.split("=") for part in rest.split() if "=" in part)
            if kind == "mpi":
                calls[rank].setdefault(rest.split()[0], []).append(fields)
            elif kind == "completion":
                completions[rank].append({k: int(v, 16 if k == "request" else 10) for k, v in fields.items()})
            elif kind == "comm" and int(fields["flags"]) & 0x60 == 0:
                comms[rank][fields["id"]] = (rest.split()[0], fields)
            elif kind == "text":
                texts[rank].append(rest.split("'")[1])


def bytes_of(rank, name):
    return [int(call["bytes"]) for call in calls[rank][name]]


for rank in range(4):
    check(bytes_of(rank, "MPI_Neighbor_allgather"), [32], "neighbourhood all-gather: received from 2 neighbours")
    check(bytes_of(rank, "MPI_Allgatherv"), [16], "all-gatherv: the whole array")
    check(bytes_of(rank, "MPI_Gather"), [32], "gather: what the root receives, on every member")
    check(bytes_of(rank, "MPI_Scatterv"), [16 if rank == 0 else 4], "scatterv: only the root knows the whole")
    check(bytes_of(rank, "MPI_Alltoall"), [16], "all-to-all in place")
    check(bytes_of(rank, "MPI_Reduce_scatter"), [16], "reduce-scatter: before it is split")
    check(bytes_of(rank, "MPI_Bcast"), [48], "a derived type's size without its holes")
    check(calls[rank]["MPI_Bcast"][0]["peer"], "1", "root")
    check(calls[rank]["MPI_Bcast"][0]["dtype"], "16", "derived type")
    world = [calls[rank][name][0]["seq"] for name in ("MPI_Allgatherv", "MPI_Gather", "MPI_Scatterv", "MPI_Alltoall",
                                                      "MPI_Reduce_scatter", "MPI_Bcast", "MPI_Allreduce_init")]
    check(world, [str(i) for i in range(7)], "one sequence for all collectives of a communicator")
    handle = int(calls[rank]["MPI_Allreduce_init"][0]["request"], 16)
    check(calls[rank]["MPI_Allreduce_init"][0]["bytes"], "80", "persistent all-reduce")
    mine = [c["flags"] for c in completions[rank] if c["request"] == handle][:4]
    check([flags & 16 for flags in mine], [16, 0, 16, 0], "start, completion, start, completion; no inactive ones")
    check(sum(1 for call in calls[rank]["MPI_Wait"]), {1: 7}.get(rank, 6), "waits")
    check(int(calls[rank]["MPI_Recv"][0]["peer"]), -1, "MPI_PROC_NULL is no peer")
    received = [c for c in completions[rank] if c["tag"] < 99 and c["bytes"] == 4 and c["source"] == 0 and c["request"] != 0]
    check(sorted(c["tag"] for c in received)[-99:], list(range(99)), "99 wildcard receives with their tags")
    check(sorted(c["index"] for c in received)[-99:], list(range(99)), "and their places in the array")
    check(sum(1 for c in completions[rank] if c["flags"] & 1), 1, "the cancelled receive")
    check("the ring" in texts[rank], True, "the communicator's name")
    # world, self, ring, 3 halves on even ranks, the duplicate.
    check(len(comms[rank]), 4 + (3 if rank % 2 == 0 else 0), "communicators")
    names = [calls[rank][name][0] for name in ("MPI_Mprobe", "MPI_Mrecv", "MPI_Imrecv")] if rank == 1 else []
    if names:
        check([n["comm"] for n in names], [names[0]["comm"]] * 3, "matched receives know their communicator")
        check((names[1]["peer"], names[1]["tag"]), ("0", "9"), "matched receive")
        check([(c["source"], c["tag"], c["bytes"]) for c in completions[rank] if c["bytes"] in (8, 12)],
              [(0, 9, 12), (0, 8, 8)], "matched receives' statuses")
shared = set(comms[0]) & set(comms[1]) & set(comms[2]) & set(comms[3])
check(len(shared), 3, "world, ring and its duplicate have one identity everywhere")
check(len((set(comms[0]) & set(comms[2])) - shared), 3, "each half has one identity on both members, and another each time")
half = next(f for i, (n, f) in comms[0].items() if i not in shared and f["size"] == "2")
check((half["first"], half["stride"], half["rank"]), ("2", "-2", "1"), "members as a stride")

for failure in failures:
    print("FAILED:", failure)
print("ok" if not failures else "")
sys.exit(1 if failures else 0)
