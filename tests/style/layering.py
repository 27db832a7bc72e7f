#!/usr/bin/env python3
"""Who may include whom (docs: the folders' arrows). Fails on a wrong arrow.

usage: layering.py SOURCE_DIR        checks the tree
       layering.py --self-test       checks that wrong arrows are found
"""

import pathlib
import re
import sys

import checking

# Folder -> prefixes of what its files may include with quotes.
ALLOWED = {
    "core": ["core/"],
    "comms": ["comms/", "core/"],
    "trace": ["trace/", "core/"],
    "runtime": ["runtime/", "comms/", "trace/", "core/"],
    "hang": ["hang/", "analysis/words/", "core/"],
    "ingest": ["ingest/", "hang/progress.h", "merge/parallel.h", "trace/", "core/"],
    "merge": ["merge/", "ingest/rank_files/", "trace/", "core/"],
    "export": ["export/", "merge/", "ingest/rank_files/", "trace/", "core/"],
    "analysis": ["analysis/", "merge/timeline/", "merge/match/awaited.h", "merge/parallel.h", "trace/file/strings.h", "core/"],
    "cli": ["cli/", "hang/", "analysis/", "export/", "merge/", "ingest/", "runtime/", "trace/", "comms/", "core/"],
    "examples": ["examples/", "runtime/lockstep.h"],
    "bench": ["bench/", "tests/", "make_run/", "cli/", "hang/", "analysis/", "export/", "merge/", "ingest/", "runtime/",
              "trace/", "comms/", "core/"],
    "tests": [""],
}
# The probe lives in somebody else's process: nothing of files, HDF5 or sockets.
NARROWER = {
    "runtime/probe": ["runtime/probe/", "runtime/lockstep.h", "core/"],
    "ingest/rank_files": ["ingest/rank_files/", "ingest/formats.def", "trace/", "core/"],
    "ingest/map": ["ingest/map/", "ingest/foreign.h", "ingest/rank_files/", "merge/parallel.h", "trace/", "core/"],
}
# What passes are written against.
FRAME = ["core/", "words/", "analyze.h", "analyze_with.h", "choose_findings.h", "context.h", "core_time.h", "pass_order.h", "passes.h"]
# Rooms of one folder: which of its other rooms a room may include. A name without "/" at its end is a file.
ROOMS = {
    "runtime/agent": {
        "rundir": [], "inject": ["rundir/"], "spool": [], "rings": ["spool/"], "recover": ["rundir/"],
        "window": ["spool/", "rings/"],
        "sample": ["rings/"], "send": ["rundir/"], "live": ["rundir/"], "stacks": [], "late": ["rings/", "spool/", "live/", "stacks/"],
        "calls": ["rings/", "spool/", "live/", "stacks/", "late/"], "hang": ["rings/", "inject/", "stacks/", "rundir/", "send/"],
        "slot": ["rundir/", "inject/", "spool/", "rings/", "window/", "sample/", "send/", "live/", "stacks/", "late/", "calls/", "hang/"],
    },
    "export": {
        "common": ["formats.def"], "chrome": ["common/"], "csv": ["common/"], "kineto": ["common/"], "perfetto": ["common/"],
        "otf2": ["common/", "kineto/"], "stacks": ["common/"],
    },
    "analysis": {  # And rules/, which any room reads.
        "core": ["words/"], "words": ["core/format.h"], "gpu": ["core/"], "stacks": ["core/", "words/"], "replay": ["core/", "gpu/"], "tables": ["core/", "gpu/", "stacks/"],
        "replayed": [*FRAME, "replay/"], "run": [*FRAME, "replayed/"], "stragglers": [*FRAME, "communication/", "replayed/", "stacks/"],
        "communication": [*FRAME, "replay/", "replayed/"], "causes": [*FRAME, "gpu/", "stacks/", "tables/engine/", "replayed/"],
        "diff": [*FRAME, "gpu/", "stacks/"], "tune": [*FRAME, "replay/", "replayed/"],
        "report": [*FRAME, "communication/", "diff/", "gpu/", "replayed/", "stacks/", "tables/", "tune/"],
    },
    "cli": {
        "output": [], "options": ["output/", "commands.def"], "input": ["options/", "output/"],
        "gather": [], "tune": ["options/", "input/", "output/"], "commands": ["options/", "input/", "output/", "gather/", "tune/"],
    },
}
# What a format's folder below ingest/ may include beside itself: only the registry's list names it.
FORMAT = ["ingest/map/", "ingest/foreign.h", "ingest/progress_format.h", "ingest/dump_file.h", "ingest/rank_files/", "hang/progress.h",
          "merge/parallel.h", "trace/", "core/"]
# Wrappers write through the probe's rings: the one arrow from comms to runtime.
WIDER = {"comms/pmpi": ["runtime/probe/"]}

# Outside headers -> folders that may see them.
OUTSIDE = {
    r"mpi\.h": ["comms/pmpi", "comms/clock_mpi", "merge/mpi", "examples", "tests", "bench"],
    r"hdf5\.h|libdeflate\.h": ["trace", "tests", "bench"],
    r"cupti.*|nvtx.*|nvToolsExt.*|cuda.*|nccl.*": ["runtime", "comms/nccl", "tests"],
    r"CLI/.*": ["cli", "examples", "tests", "bench"],
    r"nlohmann/.*": ["runtime/agent", "hang", "ingest", "merge", "analysis", "cli", "tests", "bench"],
    r"(oneapi/)?tbb/.*": ["ingest", "merge", "analysis", "trace", "tests", "bench"],
    r"nettle/.*": ["comms/clock", "tests", "bench"],
    r"boost/(asio|beast)/.*": ["cli", "tests", "bench"],
    r"boost/(?!asio/|beast/).*": ["merge", "analysis", "tests", "bench"],
    r"sqlite3\.h": ["ingest/nsys", "tests"],
    r"elfutils/.*|dwarf\.h|gelf\.h": ["runtime/unwind"],
    r"protozero/.*|otf2/.*": ["export", "tests", "bench"],
    r"fmt/.*|spdlog/.*": ["trace", "runtime/agent", "runtime/doctor", "ingest", "merge", "analysis", "cli", "tests", "bench"],
    r"gtest/.*|gmock/.*": ["tests"],
    r"benchmark/.*": ["bench"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def under(path, folder):
    return path == folder or path.startswith(folder + "/")


def may_include(path, included):
    parts = path.split("/")
    allowed = ALLOWED[parts[0]]
    if parts[0] == "ingest" and len(parts) > 2:
        allowed = [f"ingest/{parts[1]}/", *FORMAT]
    for folder, prefixes in NARROWER.items():
        if under(path, folder):
            allowed = prefixes
    for folder, rooms in ROOMS.items():
        if under(path, folder) and under(included, folder):
            room = path[len(folder) + 1:].split("/")[0]
            if room in rooms:
                allowed = [f"{folder}/{other}" for other in [room + "/", "rules/", *rooms[room]]]
    for folder, prefixes in WIDER.items():
        if under(path, folder):
            allowed = allowed + prefixes
    return any(included.startswith(prefix) for prefix in allowed)


def check(root):
    """Every wrong include below root as 'file: text'; and the number of files read."""
    wrong, files = [], 0
    for folder in ALLOWED:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cc", ".c", ".def"):
                continue
            files += 1
            path = file.relative_to(root).as_posix()
            for quoted, angled in INCLUDE.findall(file.read_text()):
                if quoted and not quoted.startswith("../") and "/" in quoted:
                    if not may_include(path, quoted):
                        wrong.append(f'{path}: may not include "{quoted}"')
                elif quoted and folder != "tests":
                    wrong.append(f'{path}: "{quoted}" is not written from the root of the tree')
                for pattern, folders in OUTSIDE.items():
                    header = angled or quoted
                    if re.fullmatch(pattern, header) and not any(under(path, f) for f in folders):
                        wrong.append(f"{path}: may not see <{header}>")
    return wrong, files


CASES = {
    'core/a.h|#include "trace/file/strings.h"': True,
    'core/a.h|#include <fmt/format.h>': True,
    'comms/clock/a.cc|#include "runtime/agent/slot/agent.h"': True,
    'comms/clock/a.cc|#include "runtime/probe/ring.h"': True,
    'comms/clock/a.cc|#include <mpi.h>': True,
    'comms/pmpi/a.cc|#include <mpi.h>\n#include "runtime/probe/ring.h"': False,
    'runtime/agent/slot/a.cc|#include "merge/merge.h"': True,
    'runtime/agent/rings/a.cc|#include "runtime/agent/slot/agent.h"': True,
    'runtime/agent/slot/a.cc|#include "runtime/agent/rings/drain.h"': False,
    'analysis/core/a.cc|#include "analysis/context.h"': True,
    'analysis/run/a.cc|#include "analysis/context.h"\n#include "analysis/core/model.h"': False,
    'export/csv/a.cc|#include "export/kineto/kineto_comm.h"': True,
    'cli/output/a.cc|#include "cli/commands/run_after.h"': True,
    'runtime/probe/a.cc|#include "trace/decode/decode.h"': True,
    'merge/a.cc|#include "runtime/agent/slot/agent.h"': True,
    'merge/a.cc|#include "comms/clock/clock_service.h"': True,
    'merge/a.cc|  #  include "analysis/analyze.h"': True,
    'merge/a.cc|#include <hdf5.h>': True,
    'merge/a.cc|#include "ingest/rank_files/rank_source.h"': False,
    'merge/a.cc|#include "ingest/kineto/read/trace_reader.h"': True,
    'ingest/a.cc|#include "merge/merge.h"': True,
    'ingest/import.cc|#include <sqlite3.h>': True,
    'ingest/kineto/a.cc|#include "ingest/nsys/read/report.h"': True,
    'ingest/map/a.cc|#include "ingest/kineto/map/join.h"': True,
    'ingest/new/read/a.cc|#include "ingest/new/read/b.h"\n#include "ingest/foreign.h"': False,
    'ingest/new/a.cc|#include "ingest/kineto/read/trace_reader.h"': True,
    'ingest/new/a.cc|#include "ingest/import.h"': True,
    'analysis/a.cc|#include "merge/merge.h"': True,
    'analysis/a.cc|#include "merge/timeline/timeline.h"\n#include <vector>': False,
    'analysis/a.cc|#include "context.h"': True,
    'cli/a.cc|#include "runtime/agent/slot/agent.h"\n#include "merge/merge.h"': False,
    'trace/a.cc|#include <hdf5.h>\n#include "core/schema.h"': False,
    'merge/mpi/a.cc|#include <mpi.h>': False,
    'hang/a.cc|#include "analysis/analyze.h"': True,
    'hang/a.cc|#include <fmt/format.h>': True,
    'hang/a.cc|#include "ingest/dumps.h"': True,
    'hang/a.cc|#include "core/printed.h"\n#include "analysis/words/render.h"': False,
    'ingest/new/a.cc|#include "hang/judge.h"': True,
}


if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
