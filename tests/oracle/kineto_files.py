#!/usr/bin/env python3
"""make_run's trace files say what its rank files say: the same kernels, copies, calls, steps, ranges and collectives.

  kineto_files.py --build BUILD SPEC
"""

import argparse
import collections
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile

import h5py
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import rank_tables  # noqa: E402

VARIANTS = ("", "minified", "gz", "time=us", "nccl=seq operators=6 python=2 runtime=3 memory=1",
            "nccl=none names=old flows=no sync=no distributed=no layout=folders", "names=rccl vendor=amd operators=0 runtime=0 memory=0")


def nanoseconds(value, whole):
    return round(value * 1000) if not whole else value * 1000


def rank_file(path):
    with rank_tables.open_file(path) as f:
        text = bytes(f["string_bytes/value"][:])
        strings = [text[o:o + n].decode() for o, n in zip(f["strings/offset_bytes"][:], f["strings/length_bytes"][:])]
        columns = lambda table, *names: list(zip(*(f[f"{table}/{name}"][:].tolist() for name in names)))
        kernels = columns("kernels", "begin_ns", "duration_ns", "stream", "correlation")
        by_kernel = {k: (int(s), int(c)) for k, s, c in columns("collectives", "kernel", "seq", "count")}
        return dict(kernels=sorted(kernels), names=sorted(strings[n] for n in f["kernels/name"][:]),
                    copies=sorted(columns("copies", "begin_ns", "duration_ns", "stream", "correlation", "bytes")),
                    api=sorted(columns("api", "begin_ns", "duration_ns", "correlation")),
                    steps=sorted((i, b, e - b) for i, b, e, c in columns("steps", "index", "begin_ns", "end_ns", "complete") if c),
                    ranges=sorted(columns("ranges", "begin_ns", "duration_ns")),
                    collectives=sorted(kernels[k] + by_kernel[k] for k in by_kernel))


def trace_file(path, whole):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
        trace = json.load(f)
    t = lambda e: (nanoseconds(e["ts"], whole), nanoseconds(e["dur"], whole))
    by_category = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        by_category[event.get("cat")].append(event)
    of = lambda *cats: [e for cat in cats for e in by_category[cat]]
    gpu = lambda e: t(e) + (e["args"]["stream"], e["args"]["correlation"])
    notes = [e for e in of("user_annotation") if not e["name"].startswith("nccl:")]
    return trace, sum(e["ph"] == "s" for e in of("ac2g")), dict(
        kernels=sorted(map(gpu, of("kernel"))),
        names=sorted(e["name"].split("(")[0] for e in of("kernel")),
        copies=sorted(gpu(e) + (e["args"]["bytes"],) for e in of("gpu_memcpy", "gpu_memset")),
        api=sorted(t(e) + (e["args"]["correlation"],) for e in of("cuda_runtime") if e["args"]["correlation"] < 1 << 30),
        steps=sorted((int(e["name"].split("#")[1]),) + t(e) for e in notes if e["name"].startswith("ProfilerStep#")),
        ranges=sorted(t(e) for e in notes if not e["name"].startswith("ProfilerStep#")),
        collectives=sorted(gpu(e) + (e["args"].get("Seq", -1), max(e["args"]["In msg nelems"], e["args"]["Out msg nelems"]))
                           for e in of("kernel") if "Collective name" in e["args"] and "Src Rank" not in e["args"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("--build", required=True)
    args = parser.parse_args()
    make, failed, compared = os.path.join(args.build, "make_run"), 0, 0
    with tempfile.TemporaryDirectory(prefix="lockstep-kineto-") as scratch:
        plain = os.path.join(scratch, "plain")
        subprocess.run([make, args.spec, plain], check=True)
        want = [rank_file(path) for path in sorted(glob.glob(plain + "/ranks/*.h5"))]
        for number, words in enumerate(VARIANTS):
            out, whole = os.path.join(scratch, str(number)), "time=us" in words
            subprocess.run([make, args.spec, out, "--kineto", words], check=True)
            paths = sorted(glob.glob(out + ("/rank_*/*" if "folders" in words else "/worker*")),
                           key=lambda path: int("".join(c for c in path[len(out):].split("/")[1].split("_")[1 if "folders" in words else 0] if c.isdigit())))
            bad = [] if len(paths) == len(want) else [f"{len(paths)} files"]
            for rank, (path, expected) in enumerate(zip(paths, want)):
                trace, arrows, got = trace_file(path, whole)
                for table, rows in expected.items():
                    if table == "names" and "names=" in words:
                        continue
                    if table == "collectives":
                        rows = [] if "nccl=none" in words else [r if "nccl=seq" in words else r[:4] + (-1,) + r[5:] for r in rows]
                    if whole:  # Cut to the microsecond.
                        cut = {"steps": (1, 2)}.get(table, (0, 1))
                        rows = sorted(tuple(v // 1000 * 1000 if i in cut else v for i, v in enumerate(r)) for r in rows) if table != "names" else rows
                    compared += len(rows)
                    if rows != got[table]:
                        bad.append(f"rank {rank} {table}: {len(got[table])} and {len(rows)} rows, "
                                   f"{[pair for pair in zip(got[table], rows) if pair[0] != pair[1]][:1]}")
                info = trace.get("distributedInfo")
                if (info is None) != ("distributed=no" in words) or (info and info["rank"] != rank):
                    bad.append(f"rank {rank}: distributedInfo {info}")
                if arrows != (0 if "flows=no" in words else len(expected["kernels"]) + len(expected["copies"])):
                    bad.append(f"rank {rank}: {arrows} arrows")
            print(f"{'FAILED' if bad else 'ok'}: kineto {words or '(plain)'}")
            for line in bad[:5]:
                print("  " + line)
            failed |= bool(bad)
    print(f"{compared} rows compared")
    return 1 if failed or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
