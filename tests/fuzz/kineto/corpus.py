#!/usr/bin/env python3
"""Small traces of every kind that the Kineto reader knows, one file each, the first byte being the fuzzer's settings.

usage: corpus.py DIRECTORY
"""
import gzip
import json
import pathlib
import sys

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 1669783687464181.125, "dur": 45.5,
     "args": {"External id": 3, "Sequence number": 4, "Input Dims": [[2, 3], []], "Input type": ["float", ""]}},
    {"ph": "X", "cat": "kernel", "name": "void k<{lambda()#1}>(int)", "pid": 0, "tid": 7, "ts": 5, "dur": 3,
     "args": {"device": 0, "context": 1, "stream": 7, "correlation": 9, "grid": [1, 1, 1], "est. achieved occupancy %": 3.5}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 9, "dur": 3,
     "args": {"bytes": 5177344, "memory bandwidth (GB/s)": 339.2, "stream": 7, "correlation": 10}},
    {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 2, "ts": 6,
     "args": {"Device Type": 1, "Device Id": 0, "Bytes": -5}},
    {"ph": "s", "id": 9, "pid": 1, "tid": 2, "ts": 4, "cat": "ac2g", "name": "ac2g"},
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
    {"ph": "X", "cat": "python_function", "name": "C:\\train.py(1): \"f\"", "pid": 1, "tid": 2, "ts": 1, "dur": 9},
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 1, "dur": 99},
    {"ph": "B", "name": "b", "pid": 1, "tid": 2, "ts": 1},
    {"ph": "X", "cat": "Kernel", "name": "old \u00e9 \U0001f600", "pid": "0", "tid": "stream 7", "ts": "12.5", "dur": "1e3"},
    {"ph": "X", "cat": "kernel", "name": "odd", "pid": 0, "tid": 7, "ts": float("nan"), "dur": -1,
     "args": {"x": float("inf"), "correlation": 18446744073709551615}},
]
HEAD = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}],
        "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2}, "record_shapes": 1}
TAIL = {"traceName": "t.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1711964646000000000}


def traces():
    minified = {"separators": (",", ":")}
    for index, event in enumerate(EVENTS):
        yield f"one-{index}", json.dumps({"traceEvents": [event]}, **minified)
    yield "minified", json.dumps({**HEAD, "traceEvents": EVENTS, **TAIL}, **minified)
    yield "pretty", json.dumps({**HEAD, "traceEvents": EVENTS[:4], **TAIL}, indent=2)
    yield "late-head", json.dumps({"traceEvents": EVENTS[:2], **TAIL, **HEAD}, ensure_ascii=False)
    yield "array", json.dumps(EVENTS[:5])
    yield "open-array", "[" + ",\n".join(json.dumps(e) for e in EVENTS[:3]) + ",\n"
    yield "nested", json.dumps({"traceEvents": [{"ph": "i", "name": "n", "ts": 1, "args": {"l": EVENTS[:2]}}, EVENTS[0]]})
    yield "broken-name", '{"traceEvents":[' + json.dumps(EVENTS[0]) + ',{"ph":"X","name":"a"b","ts":1,"dur":1},' + json.dumps(EVENTS[1]) + "]}"
    yield "no-bracket", '{"traceEvents":[{"ph":"X","name":"a","args":{"l":[1,' + json.dumps(EVENTS[0]) + "," + json.dumps(EVENTS[1]) + ']}'
    yield "bad-head", '{"x":?,"traceEvents":[' + json.dumps(EVENTS[0]) + "]}"
    yield "mark", "\ufeff" + json.dumps({"traceEvents": EVENTS[:1]})
    yield "twice", '{"traceEvents":[{}],"traceEvents":[{}]}{}'


def main(directory):
    directory.mkdir(parents=True, exist_ok=True)
    for number, (name, text) in enumerate(traces()):
        for settings in (0x01, 0x0E):
            (directory / f"{name}-{settings:02x}").write_bytes(bytes([settings]) + text.encode())
        packed = gzip.compress(text.encode(), mtime=0)
        if number % 4 == 0:
            (directory / f"{name}-file").write_bytes(b"\x30" + packed)
            (directory / f"{name}-garbage").write_bytes(b"\x30" + packed + packed[: len(packed) // 2])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
