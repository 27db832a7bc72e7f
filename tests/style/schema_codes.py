#!/usr/bin/env python3
"""Codes of the schema's enumerations are named, not written as numbers: what `kind == 2` means is said in one place
(core/schema_enums.h), and a number says it nowhere.

usage: schema_codes.py SOURCE_DIR        checks the tree
       schema_codes.py --self-test       checks that numbers are found
"""

import re
import sys

import checking

ENUMERATOR = re.compile(r"V\((k\w+), (\d+),")
CONSTANTS = re.compile(r"\bconstexpr [^;{}()]*;")
COLUMN = re.compile(r"X\(u\d+, (\w+), Enum<\w+>")
# Names of columns that other structs have too, by file: what they are there, since no table's row is meant.
OTHERS = {
    "analysis/gpu/launch_index.cc": "a bit for each source, as many as there are bits",
    "analysis/replay/gpu/gpu_rank.h": "source of a message: a rank",
    "analysis/replay/host/host_messages.h": "source of a message: a rank",
    "analysis/core/model.h": "source of a pair: a rank",
    "comms/launch/launch_env.cc": "state of a parser",
    "comms/nccl/traced.h": "not filled in yet",
    "comms/pmpi/pmpi_table.cc": "state of a table",
    "ingest/map/collectives.cc": "direction of an operation that may be none: -1",
    "ingest/map/comm_operations.cc": "direction of an operation that may be none: -1",
    "ingest/kineto/map/partial.h": "source of a message: a rank",
    "merge/match/sequence_walk.cc": "direction of a walk",
    "runtime/probe/nvtx.cc": "category of NVTX: the application's number",
    "runtime/probe/nvtx_ranges.cc": "category of NVTX: the application's number",
    "runtime/doctor/machine.cc": "state of a setting",
    "runtime/probe/ring.cc": "state of a key",
}


def names(root):
    """Of the columns that hold codes."""
    found = set()
    for file in (root / "core").glob("*_tables.h"):
        found.update(COLUMN.findall(file.read_text()))
    return found


def enumerators(root):
    """Declarations "kName = 3" that give a code of an enumeration its name a second time."""
    file = root / "core" / "schema_enums.h"
    found = set(ENUMERATOR.findall(file.read_text())) if file.exists() else {("kSample", "3")}
    return {f"{name} = {code}" for name, code in found}


def check(root):
    columns = names(root) or {"kind", "work", "state", "outcome", "source"}  # The self-test has no tables.
    again = enumerators(root)
    codes = re.compile(r"(?:\.|->)(?:%s)(?:\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)?\])? *(?:==|!=|<=|>=|<|>|=) *\d+\b(?! *<<)" %
                       "|".join(sorted(columns)))
    wrong, files = [], 0
    for path, text in checking.sources(root):
        files += 1
        if path in OTHERS:
            continue
        for number, line in enumerate(checking.stripped(text).splitlines(), 1):
            for match in codes.finditer(line):
                wrong.append(f"{path}:{number}: {match[0]}: name the code, as core/schema_enums.h does")
        for constants in CONSTANTS.findall(checking.stripped(text)):
            if "int" in constants:
                wrong += [f"{path}: {one}: use the enumeration of core/schema_enums.h"
                          for one in re.findall(r"\bk\w+ = \d+\b", constants) if one in again]
    return wrong, files


CASES = {
    "merge/a.cc|if (t.kernels.work[i] == 1) return;": True,
    "merge/a.cc|if (t.kernels.work[rows[i]] != 0) return;": True,
    "merge/a.cc|if (row->outcome >= 3) return;": True,
    "merge/a.cc|copies.Append({.kind = 6});": True,
    "cli/a.cc|ranks.state[i] = 4;": True,
    "merge/a.cc|if (t.kernels.work[i] == schema::Work::kCommunication) return;": False,
    "merge/a.cc|if (t.kernels.bytes[i] == 1) return;": False,
    "merge/a.cc|// work == 1, as in .work == 1": False,
    "merge/a.cc|std::string kind = 2;": False,
    "merge/a.cc|constexpr std::uint8_t kOther = 9, kSample = 3;": True,
    "merge/a.cc|constexpr std::uint8_t kSample = 7;": False,
}


if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
