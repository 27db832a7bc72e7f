#!/usr/bin/env python3
"""A column more in every table: every reader, exporter, table and `info` says what it said without it.

usage: scratch_column.py BUILD_DIR [SCRATCH_BUILD_DIR]

Builds Lockstep a second time, without optimisation and with LOCKSTEP_SCRATCH_COLUMN (core/schema.h), which takes some
10 minutes of two cores: it is no part of the tests' run, but the target `scratch_column` runs it. Do so when something
that reads, writes or shows tables was changed.
"""

import csv
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = ["gpu_ddp", "fsdp_gpu", "mixed_mpi", "pipeline_gpu", "missing_rank"]
SCRATCH = "scratch_ns"
filled = set()  # Sheets in which somebody gave the column a value.


def command(*arguments, ok=(0,)):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    env.update(NO_COLOR="1", LC_ALL="C.UTF-8", COLUMNS="100")
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, env=env)
    if done.returncode not in ok:
        raise SystemExit(f"{' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def build(directory):
    command("cmake", "-S", ROOT, "-B", directory, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
            "-DCMAKE_CXX_FLAGS=-O0 -DLOCKSTEP_SCRATCH_COLUMN", "-DLOCKSTEP_JOIN_SOURCES=ON", "-DLOCKSTEP_BUILD_BENCH=OFF", "-DLOCKSTEP_BUILD_EXAMPLES=OFF")
    command("cmake", "--build", directory, "--target", "lockstep", "make_run")


def sheet(path):
    """Without the column."""
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    if rows and SCRATCH in rows[0]:
        at = rows[0].index(SCRATCH)
        if {row[at] for row in rows[1:]} - {""}:
            filled.add(path.name)
        rows = [row[:at] + row[at + 1:] for row in rows]
    return rows


def outputs(lockstep, run, out):
    """What the build says of the run, by what was asked."""
    said = {}

    def ask(name, *arguments):
        text = command(lockstep, *arguments, ok=(0, 3))
        # Digests and checksums are of all columns; sizes of files and places differ.
        text = re.sub(r"[0-9a-f]{16}", "DIGEST", text.replace(str(out), "OUT").replace(str(run), "RUN"))
        said[name] = re.sub(r"\d+(\.\d+)? \w?B\b", "SIZE", "\n".join(l for l in text.splitlines() if SCRATCH not in l))

    ask("merge", "merge", run)
    ask("analyze", "analyze", run, "--json", out / "analysis.json")
    ask("report", "report", run, "-o", out / "page.html")
    ask("info", "info", run, "--digest")
    ask("info json", "info", run / "timeline.h5", "--json", "-")
    for name in re.findall(r"^ {2}([a-z][\w-]*) {2,}", command(lockstep, "analyze", "--table", "help"), re.M):
        if name != "lockstep":
            ask(f"table {name}", "analyze", run, "--table", name)
    for form in ("csv", "kineto", "chrome", "perfetto"):
        ask(f"export {form}", "export", run, "--format", form, "-o", out / form)
    for file in (out / "csv").iterdir():
        if file.name not in ("timeline_meta.csv", "timeline_ranks.csv"):  # Checksums of files.
            said[f"sheet {file.name}"] = sheet(file)
    for file in (out / "kineto").rglob("*.json"):
        said[f"kineto {file.name}"] = file.read_text()
    said["chrome"] = next(p for p in (out / "chrome", out / "chrome.json") if p.is_file()).read_text()
    said["analysis.json"] = re.sub(r'"digest": "[^"]*"', "", (out / "analysis.json").read_text()).replace(str(run), "RUN")
    return said


def main(plain, scratch):
    wrong, asked = [], 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as held:
            held, said = pathlib.Path(held), []
            # Files that have the column and files that lack it, read with and without it.
            for writer, reader in ((plain, plain), (plain, scratch), (scratch, scratch)):
                at = held / f"{len(said)}"
                run, out = at / "run", at / "out"
                out.mkdir(parents=True)
                command(writer / "make_run", ROOT / "tests" / "golden" / "cases" / case / "run.trace", run, "--set", "steps=8")
                said.append(outputs(reader / "lockstep", run, out))
            asked += len(said[0])
            for what in said[0]:
                for other, name in ((said[1], "files without the column"), (said[2], "files with it")):
                    if other.get(what) != said[0][what]:
                        wrong.append(f"{case}: {what}: differs ({name})")
            with_column = [p for p in said[2] if p.startswith("sheet ")]
            assert len(with_column) > 20, with_column
    wrong += [f"{name}: {SCRATCH} has a value that nobody gave it" for name in sorted(filled)]
    for line in wrong:
        print(line)
    print(f"{asked} answers compared, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    plain = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as held:
        scratch = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else held).resolve()
        if not (scratch / "lockstep").exists():
            build(scratch)
        sys.exit(main(plain, scratch))
