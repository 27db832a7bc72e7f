#!/usr/bin/env python3
"""Files of older schemas (made by make.py): what they lack is unknown, and nothing that shows it says anything else.

usage: old_files_test.py BUILD_DIR [unittest arguments]
"""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

# What a sheet shows for a column that the file lacks. Nothing, but for codes and for values whose "none" is an answer.
SHOWN = {
    "ranges/payload_kind": "0", "ranges/category_id": "0", "comms/identity": "0", "copies/host_memory": "0",
    "collectives/kernel_operations": "0", "collectives/reduction": "0",
}
NOT_EXPORTED = {"range_categories"}


def lockstep(*arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    env.update(NO_COLOR="1", LC_ALL="C.UTF-8")
    return subprocess.run([BUILD / "lockstep", *map(str, arguments)], capture_output=True, text=True, env=env, timeout=100)


def missing(path):
    """As the file says itself: columns of tables that it has."""
    name, number = re.match(r"(\w+)-schema-(\d+)", path.name).groups()
    return name, int(number)


class OldFiles(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.directory = pathlib.Path(held.name)

    def run_of(self, path):
        run = self.directory / path.stem
        (run / "ranks").mkdir(parents=True)
        shutil.copy(path, run / "ranks" / "rank-00000.h5")
        return run

    def succeed(self, *arguments):
        done = lockstep(*arguments)
        self.assertIn(done.returncode, (0, 3), (arguments, done.stdout, done.stderr))
        return done

    def unknown_columns(self, path):
        facts = json.loads(self.succeed("info", path, "--json", "-").stdout)["files"][0]
        self.assertEqual(facts["missing_columns"], len(facts["unknown_columns"]))
        return facts["unknown_columns"]

    def test_info_names_what_is_unknown(self):
        for path in FILES:
            with self.subTest(path.name):
                unknown = self.unknown_columns(path)
                self.assertEqual(set(unknown), ADDED_AFTER(path))
                text = self.succeed("info", path).stdout
                for column in unknown:
                    self.assertIn(column, text)
                self.assertEqual("read as unknown" in text, bool(unknown))  # A whole table that is absent is empty.

    def test_sheets_leave_it_empty(self):
        for path in (p for p in FILES if p.name.startswith("rank")):
            with self.subTest(path.name):
                run, sheets = self.run_of(path), self.directory / (path.stem + "-csv")
                self.succeed("export", run, "--format", "csv", "-o", sheets)
                for column in ADDED_AFTER(path):
                    table, name = column.split("/")
                    with open(sheets / (table + ".csv"), newline="") as sheet:
                        rows = list(csv.DictReader(sheet))
                    self.assertEqual(len(rows), 3, column)
                    self.assertEqual({row[name] for row in rows}, {SHOWN.get(column, "")}, column)

    def test_traces_do_not_tell_it(self):
        run = self.run_of(HERE / "rank-schema-3.h5")
        self.succeed("export", run, "--format", "kineto", "-o", self.directory / "kineto")
        text = "".join(file.read_text() for file in (self.directory / "kineto").rglob("*.json"))
        self.assertIn('"grid": [1, 1, 1]', text)
        self.assertNotIn("occupancy", text)
        # A file of today that knows it says so: the check above is of something.
        whole = self.run_of(HERE / "rank-schema-4.h5")
        self.succeed("export", whole, "--format", "kineto", "-o", self.directory / "known")
        self.assertIn("occupancy", "".join(f.read_text() for f in (self.directory / "known").rglob("*.json")))

    def test_everything_reads_them(self):
        names = self.tables()
        for path in (p for p in FILES if p.name.startswith("rank")):
            with self.subTest(path.name):
                run = self.run_of(path)
                self.succeed("merge", run)
                self.succeed("analyze", run, "--json", self.directory / "analysis.json")
                self.succeed("report", run, "-o", self.directory / "page.html")
                for form in ("perfetto", "kineto", "chrome"):
                    self.succeed("export", run, "--format", form, "-o", self.directory / f"{path.stem}-{form}")
        for name in names:
            self.succeed("analyze", self.directory / "rank-schema-1", "--table", name)

    def test_columns_of_a_newer_schema_change_nothing(self):
        """A file of the newest schema, and the same with a column more in every table."""
        outputs = []
        for folder, more in (("today", []), ("tomorrow", [("scratch_ns", "i64", "ns", "")])):
            (self.directory / folder).mkdir()
            path = self.directory / folder / "rank-schema-9.h5"
            make.make(path, "rank", make.NEWEST["rank"], more)
            self.assertEqual(self.unknown_columns(path), [])
            run, sheets = self.run_of(path), self.directory / folder / "csv"
            self.succeed("export", run, "--format", "csv", "-o", sheets)
            said = [self.succeed("info", path, "--digest").stdout, *[self.succeed("analyze", run, "--table", name).stdout
                                                                     for name in self.tables()[:8]]]
            outputs.append(([text.replace(folder, "") for text in said],
                            {file.name: file.read_text() for file in sheets.iterdir() if file.name != "timeline_meta.csv"}))
            shutil.rmtree(run)
        self.assertGreater(len(outputs[0][1]), 20)
        self.assertEqual(*outputs)

    def tables(self):
        lines = self.succeed("analyze", "--table", "help").stdout
        names = [name for name in re.findall(r"^ {2}([a-z][\w-]*) ", lines, re.M) if name != "lockstep"]
        self.assertGreater(len(names), 10)
        return names


def ADDED_AFTER(path):
    kind, number = missing(path)
    return {f"{t}/{c}" for t, c in make.later(kind, number)[1] if t not in make.later(kind, number)[0]}


if __name__ == "__main__":
    try:
        import make
    except ModuleNotFoundError as error:
        print(f"SKIPPED: {error.name} is not here (Debian: python3-h5py)")
        sys.exit(77)
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    FILES = sorted(HERE.glob("*.h5"))
    assert len(FILES) >= 9, FILES
    unittest.main()
