#!/usr/bin/python3
"""Makes rank-schema-N.h5 and timeline-schema-N.h5: a file of each older schema, as a Lockstep of that time left it.

usage: make.py DIRECTORY

The number of the format never changed; tables and columns were added. ADDED says when. A file of schema N has every
table of that time with ROWS rows, every column of that time, and nothing that came later. What the values are is of no
weight but that they make sense: numbers count up, rows point at rows that there are, codes are 1.

The files are committed, and a file that is there stays. When a schema is added, put what the newest one lacked so far
into ADDED and run this: it makes the file of that one.
"""

import pathlib
import re
import sys

import h5py
import numpy as np

ROWS = 3
EPOCH_NS, STEP_NS = 1_000_000_000_000, 1_000_000
ROOT = pathlib.Path(__file__).resolve().parents[2]

# Schema number -> table -> what came with it; None: the table itself.
ADDED = {
    "rank": {
        2: {"ranges": ["payload_kind"], "windows": None, "gradient_buckets": None},
        3: {"mpi_requests": None, "ranges": ["category_id"], "range_categories": None},
        4: {"comms": ["identity"], "kernel_shapes": ["occupancy_percent"], "copies": ["host_memory"], "devices": None},
        5: {"collectives": ["kernel_operations", "enqueue_begin_ns", "reduction", "algorithm", "protocol", "channels", "buffer"],
            "p2p": ["kernel"], "sync": ["record_correlation", "record_stream"], "gpu_samples": None, "overheads": None},
        6: {"stacks": None, "samples": None},
        7: {"collectives": ["caller"], "p2p": ["caller"]},
        8: {"blocked": None},
        9: {"steps": ["others_cpu_ns"]},
        10: {"collectives": ["user_tag"], "p2p": ["user_tag"]},
    },
    "timeline": {
        2: {"windows": None},
        3: {"step_ranks": ["mpi_io_ns", "mpi_rma_ns", "late_sender_ns", "late_receiver_ns"],
            "rank_totals": ["mpi_io_ns", "mpi_rma_ns", "late_sender_ns", "late_receiver_ns"],
            "p2p_pairs": None, "step_phases": None, "gradient_buckets": None},
        4: {"rank_totals": ["span_ns"], "ranks": ["allowed_cpus"]},
        5: {"ranks": ["profiling_ns"], "collectives": ["operations"], "rank_gpus": None},
        6: {"step_ranks": ["helper_wait_ns"], "rank_totals": ["helper_wait_ns"]},
        7: {"collective_ranks": ["exempt"]},
        8: {"step_ranks": ["mpi_setup_ns"], "rank_totals": ["mpi_setup_ns"]},
        9: {table: ["blocked_ns", "blocked_sleep_ns", "blocked_lock_ns", "blocked_python_ns", "blocked_file_ns", "blocked_socket_ns", "blocked_unplaced_ns"]
            for table in ("step_ranks", "rank_totals")},
        10: {"step_ranks": ["message_wait_ns"], "rank_totals": ["message_wait_ns"]},
        11: {"message_numbers": None},
    },
}
NEWEST = {kind: max(added) for kind, added in ADDED.items()}
META = {"rank": "0", "world_size": "1", "rank_source": "mpi", "host": "old", "node": "old", "run_id": "old",
        "lockstep_version": "0.0.1", "exit_code": "0", "clock_mode": "raw"}


def schema():
    """kind -> table -> [(column, type, unit, meaning)], from the page that is checked against the code."""
    tables, kind, table = {"rank": {}, "timeline": {}}, None, None
    for line in (ROOT / "docs" / "trace-format.md").read_text().splitlines():
        if line.startswith("## "):
            kind = "rank" if "lockstep.rank/" in line else "timeline" if "lockstep.timeline/" in line else None
        elif kind and line.startswith("### `"):
            table = tables[kind].setdefault(line.split("`")[1], [])
        elif kind and (row := re.match(r"\| `(\w+)` \| ([ui]\d+) \| ([^|]+) \| (.*) \|$", line)):
            table.append(row.groups())
    return tables


def later(kind, number):
    """Tables and (table, column) pairs that came after schema `number`."""
    tables, columns = set(), set()
    for n, added in ADDED[kind].items():
        if n > number:
            tables.update(t for t, c in added.items() if c is None)
            columns.update((t, c) for t, cs in added.items() for c in cs or [])
    return tables, columns


def values(name, kind, unit, texts):
    rows = np.arange(ROWS)
    if unit == "ns":
        moment = not (name == "duration_ns" or name.startswith(("cpu_", "run_delay_", "width_")))
        return EPOCH_NS + rows * STEP_NS + (STEP_NS // 2 if "end" in name else 0) if moment else np.full(ROWS, 1000)
    if unit == "string":
        return np.full(ROWS, texts)
    if unit in ("id", "rows"):
        return np.zeros(ROWS)
    if unit == "enum":
        return np.full(ROWS, 1)
    return np.full(ROWS, {"bool": 0, "bytes": 4096}.get(unit, 1))


def make(path, kind, number, more=()):
    """`more`: columns (name, type, unit, meaning) that every table has besides."""
    no_tables, no_columns = later(kind, number)
    texts = ["text", *[text for pair in META.items() for text in pair]]
    raw = [text.encode() for text in texts]
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file.attrs["format"] = np.bytes_(f"lockstep.{kind}/1")
        file.attrs["complete"] = 1
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        compact.set_obj_track_times(False)
        for table, columns in schema()[kind].items():
            if table in no_tables:
                continue
            group = h5py.h5g.create(file.id, table.encode())
            for name, type_, unit, _ in [*columns, *more]:
                if (table, name) in no_columns:
                    continue
                data = values(name, kind, unit, 0)
                if table == "strings":
                    sizes = np.array([len(r) for r in raw])
                    data = np.cumsum(sizes) - sizes if name == "offset_bytes" else sizes
                elif table == "string_bytes":
                    data = np.frombuffer(b"".join(raw), "u1")
                elif table == "meta":
                    data = np.arange(len(META)) * 2 + (1 if name == "key" else 2)
                elif name in ("index", "seq", "correlation") or (table, name) in (("threads", "thread"), ("comms", "comm")):
                    data = np.arange(ROWS)
                elif name in ("rank", "world_rank", "comm_rank"):
                    data = np.zeros(ROWS)
                data = np.asarray(data).astype(np.dtype(f"<{type_[0]}{int(type_[1:]) // 8}"))
                space = h5py.h5s.create_simple(data.shape)
                h5py.h5d.create(group, name.encode(), h5py.h5t.py_create(data.dtype), space, dcpl=compact).write(
                    h5py.h5s.ALL, h5py.h5s.ALL, data)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    for kind, newest in NEWEST.items():
        for number in range(1, newest):
            # Those that are there stay: made again they contain the same values in other bytes.
            if not (out / f"{kind}-schema-{number}.h5").exists():
                make(out / f"{kind}-schema-{number}.h5", kind, number)
