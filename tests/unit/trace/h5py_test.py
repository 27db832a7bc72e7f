"""Files of Lockstep through plain h5py, and the code of docs/trace-format.md on them.

h5py_test.py MAKE_EXAMPLE DOC
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction

OPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../core/mpi_ops.def")

try:
    import h5py
    import numpy as np
    import pandas as pd
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def blocks(doc):
    """Python blocks of the document, by the name in the comment before each."""
    text = open(doc, encoding="utf-8").read()
    return dict(re.findall(r"<!-- test: (\w+) -->\n```python\n(.*?)```", text, re.S))


def check_layout(path):
    with h5py.File(path, "r") as f:
        assert f.attrs["format"] == "lockstep.rank/1", f.attrs["format"]
        assert f.attrs["complete"] == 1
        assert f.attrs["lockstep_version"]
        calls = f["mpi_calls"]
        assert calls.attrs["description"]
        n = 150_000
        i = np.arange(n)
        assert (calls["begin_ns"][:] == 10**15 + i * 1000).all()
        assert (calls["duration_ns"][:] == i % 977).all()
        assert (calls["op"][:] == i % 200).all()
        assert (calls["comm"][:] == np.where(i % 2 == 0, 0, 0xFFFFFFFF)).all()
        assert (calls["bytes"][:] == i.astype("u8") << np.uint64(40)).all()
        assert (calls["peer"][:] == -(i % 3)).all()
        assert (calls["outcome"][:] == i % 4).all()
        for name, table in f.items():
            rows = {column.shape for column in table.values()}
            assert len(rows) == 1 and len(next(iter(rows))) == 1, name
            for column in table.values():
                assert column.attrs["unit"] and column.attrs["description"], column.name
                assert column.shuffle and column.compression == "gzip" and column.compression_opts == 1
                assert column.maxshape == (None,)
        assert calls["op"].dtype == np.dtype("<u2") and calls["peer"].dtype == np.dtype("<i4")
        assert calls["begin_ns"].chunks == (65536,)
        assert "p2p" not in f and set(f) == {"mpi_calls", "steps", "strings", "string_bytes", "meta"}, list(f)


def check_small(path, code):
    """A file that was composed in memory, as h5py sees it."""
    with h5py.File(path, "r") as f:
        assert f.attrs["format"] == "lockstep.rank/1" and isinstance(f.attrs["format"], str)
        assert f.attrs["complete"] == 1 and f.attrs["lockstep_version"]
        assert set(f) == {"mpi_calls", "steps", "strings", "string_bytes", "meta"}, list(f)
        calls = f["mpi_calls"]
        i = np.arange(100)
        assert calls["begin_ns"].compression == "gzip" and calls["begin_ns"].shuffle
        assert calls["op"].compression is None and calls["op"].chunks is None
        assert calls["op"].dtype == np.dtype("<u2") and calls["peer"].dtype == np.dtype("<i4")
        assert (calls["begin_ns"][:] == 10**15 + i * 1000).all() and (calls["duration_ns"][:] == i % 977).all()
        assert (calls["op"][:] == i % 200).all() and (calls["peer"][:] == -(i % 3)).all()
        # What is unknown in every row is not there, and the table says so.
        left_out = dict(line.split(" ", 1) for line in calls.attrs["left_out"].decode().splitlines())
        assert left_out["thread"] == "u32 id 4294967295", left_out
        assert not set(left_out) & set(calls)
        for table in f.values():
            assert isinstance(table.attrs["description"], str)
            for column in table.values():
                assert isinstance(column.attrs["unit"], str) and column.attrs["description"], column.name
        assert calls["begin_ns"].attrs["clock"] == "rank"
        assert f["mpi_calls/outcome"].attrs["codes"].startswith("0 completed\n1 ")
    scope = {"path": path}
    exec(code["frame"], scope)
    assert len(scope["calls"]) == 100
    exec(code["codes"], scope)
    ops = dict(re.findall(r"^LS_MPI_OP\((\d+), (\w+)", open(OPS).read(), re.M))
    assert scope["codes"] == {str(n): "MPI_" + ops[str(n)] for n in range(100) if str(n) in ops}, scope["codes"]
    check_strings(path, code["meta"])
    path = shutil.copy(path, path + ".edited")
    with h5py.File(path, "r+") as f:
        f["mpi_calls/op"][3] = 7
        f["mpi_calls/begin_ns"][...] = i * 12345 % 97
        del f["steps"]["index"]
        f.create_group("mine").attrs["text"] = "x"
        # Texts that other columns share stay theirs.
        f["mpi_calls/begin_ns"].attrs["unit"] = "s"
        del f["mpi_calls/duration_ns"].attrs["unit"]
    with h5py.File(path, "r") as f:
        assert f["mpi_calls/begin_ns"].attrs["unit"] == "s" and "unit" not in f["mpi_calls/duration_ns"].attrs
        assert f["steps/begin_ns"].attrs["unit"] == "ns" and f["steps/end_ns"].attrs["unit"] == "ns"
        assert f["mpi_calls/op"][3] == 7 and (f["mpi_calls/begin_ns"][:] == i * 12345 % 97).all() and "mine" in f


def check_codes(path, code):
    """The codes' names from the file alone, also of a function that MPI has and this run did not call."""
    scope = {"path": path}
    exec(code, scope)
    ops = dict(re.findall(r"^LS_MPI_OP\((\d+), (\w+)", open(OPS).read(), re.M))
    assert scope["codes"] == {number: "MPI_" + name for number, name in ops.items()}, scope["codes"]
    assert scope["names"][:150] == ["MPI_" + ops[str(i)] if str(i) in ops else i for i in range(150)]
    with h5py.File(path, "r") as f:
        assert f["mpi_calls/outcome"].attrs["codes"].startswith("0 completed\n1 "), f["mpi_calls/outcome"].attrs["codes"]
        assert f["mpi_calls/begin_ns"].attrs["clock"] == "rank" and "clock" not in f["mpi_calls/duration_ns"].attrs
        assert "codes" not in f["mpi_calls/bytes"].attrs


def check_frame(path, code):
    scope = {"path": path}
    exec(code, scope)
    frame = scope["calls"]
    assert isinstance(frame, pd.DataFrame) and len(frame) == 150_000
    assert frame["duration_ns"].sum() == (np.arange(150_000) % 977).sum()


def check_strings(path, code):
    scope = {"path": path}
    exec(code, scope)
    assert scope["meta"] == {"rank": "3", "command": "./app 'größer'"}, scope["meta"]


def exact(knots, t):
    """cluster time by rational arithmetic."""
    if len(knots) == 1:
        return Fraction(t) + knots[0][1]
    at = 0
    while at + 2 < len(knots) and knots[at + 1][0] <= t:
        at += 1
    (a, x), (b, y) = knots[at], knots[at + 1]
    return Fraction(t) + x + Fraction(y - x) * (t - a) / (b - a)


def check_clock(path, code):
    with h5py.File(path, "r") as f:
        clock = f["clock"]
        rows = list(zip(clock["rank"][:].tolist(), clock["local_ns"][:].tolist(), clock["offset_ns"][:].tolist()))
    for rank in range(4):
        knots = [(local, offset) for r, local, offset in rows if r == rank]
        local_ns = knots[0][0] + np.arange(-2_000_000_000, 7_000_000_000, 333_333_331, dtype="i8")
        scope = {"path": path, "rank": rank, "local_ns": local_ns}
        exec(code, scope)
        cluster = scope["cluster_ns"]
        assert cluster.dtype == np.dtype("i8")
        for t, c in zip(local_ns.tolist(), cluster.tolist()):
            assert abs(exact(knots, t) - c) <= 1, (rank, t, c, float(exact(knots, t) - c))


def main():
    make, doc = sys.argv[1:]
    code = blocks(doc)
    with tempfile.TemporaryDirectory() as folder:
        rank_file, timeline, small = (os.path.join(folder, name) for name in ("rank.h5", "timeline.h5", "small.h5"))
        subprocess.run([make, rank_file, timeline, small], check=True)
        check_layout(rank_file)
        check_frame(rank_file, code["frame"])
        check_codes(rank_file, code["codes"])
        check_strings(rank_file, code["meta"])
        check_clock(timeline, code["clock"])
        check_small(small, code)
    print("ok")


main()
