"""What is given to a command and cannot be read: the first line says what it is, the exit code is that of docs/README.md, for every command.

usage: inputs_test.py BUILD_DIR [unittest arguments]
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
LOCKSTEP = str(BUILD / "lockstep")
COMMANDS = ("analyze", "merge", "report", "info", "diff", "export", "whatif", "open")
CANNOT_BE_USED, INCOMPLETE = 2, 3

RUN = "ranks 2\nsteps 6\nnetwork alpha=20us bandwidth=5GB/s\nstep\n  forward 4ms\n  allreduce 1MiB\nend\n"
PAGE = "<!DOCTYPE html>\n<html><body>a page</body></html>\n"
DEVTOOLS = {"traceEvents": [{"cat": "devtools.timeline", "name": "RunTask", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "args": {}}]}
JAX = {"displayTimeUnit": "ns", "traceEvents": [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
    {"ph": "X", "pid": 1, "tid": 14, "ts": 1.0, "dur": 3.0, "name": "fusion.1", "args": {"correlation_id": "5"}}]}
ROCPROF = {"traceEvents": [{"args": {"name": "GPU0"}, "ph": "M", "pid": 8, "name": "process_name"}] + [
    {"ts": str(i), "dur": "3", "ph": "X", "pid": 8, "tid": 1, "name": "Cijk_Ailk", "args": {"BeginNs": str(i * 1000), "EndNs": str(i * 1000 + 3000)}} for i in range(4)]}


def lockstep(*words, cwd):
    return subprocess.run([LOCKSTEP, *map(str, words)], capture_output=True, text=True, timeout=120, cwd=cwd)


class Inputs(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-inputs-"))
        self.addCleanup(shutil.rmtree, self.place)

    def file(self, name, content):
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def run_of_two(self, name="run"):
        spec = self.file(name + ".trace", RUN)
        subprocess.run([BUILD / "make_run", spec, self.place / name], check=True)
        return self.place / name

    def refused(self, path, said, commands=COMMANDS, never=()):
        for command in commands:
            with self.subTest(command=command, given=path.name):
                done = lockstep(command, path, *(["--save-baseline", "-"] if command == "diff" else []), cwd=self.place)
                self.assertEqual(done.returncode, CANNOT_BE_USED, done.stdout + done.stderr)
                lines = [line for line in done.stderr.splitlines() if not line.startswith("lockstep: ")]
                self.assertEqual(len(lines), 3, done.stderr)
                self.assertRegex(lines[0], f"^error: .*{said}")
                self.assertTrue(lines[2].startswith("  try: "), done.stderr)
                for text in never:
                    self.assertNotIn(text, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_an_empty_directory(self):
        (self.place / "empty").mkdir()
        self.refused(self.place / "empty", "this directory is empty", (*COMMANDS, "recover", "doctor"))

    def test_nothing_there(self):
        self.refused(self.place / "nowhere", "no such run directory", (*COMMANDS, "recover", "doctor"))

    def test_a_directory_of_other_files(self):
        for name, content in (("notes.txt", "notes"), ("page.html", PAGE), ("table.csv", "a,b\n1,2\n"), ("package.json", {"name": "x"}), ("below/list.json", [1, 2])):
            self.file("other/" + name, content)
        self.refused(self.place / "other", "no run in this directory, and no trace", (*COMMANDS, "recover", "doctor"))

    def test_a_page_and_a_text(self):
        self.refused(self.file("page.html", PAGE), "neither a (run nor|file of Lockstep's nor)", never=["HDF5"])
        self.refused(self.file("notes", "some notes"), "neither a (run nor|file of Lockstep's nor)", never=["HDF5"])

    def test_a_json_that_is_no_trace(self):
        self.refused(self.file("package.json", {"name": "x"}), "(there is no traceEvents in it|neither a JSON file of Lockstep's nor a trace|not a baseline)")
        self.refused(self.file("empty.json", ""), "(is empty)")

    def test_traces_of_other_programs(self):
        self.refused(self.file("devtools.json", DEVTOOLS), "its only event is of no kind that is understood .*devtools.timeline")
        self.refused(self.file("jax.json", JAX), "no category|of no kind")
        self.refused(self.file("rocprof.json", ROCPROF), "none of its 4 events is of a kind that is understood|no category")

    def test_files_of_a_run(self):
        run = self.run_of_two()
        for name in ("ranks/rank-00000.h5", "timeline.h5"):
            if (run / name).exists() or not subprocess.run([LOCKSTEP, "merge", run, "-j", "1"], capture_output=True).returncode:
                self.refused(run / name, "a file of a run, not the run", [command for command in COMMANDS if command != "info"])

    def test_rank_files_that_are_something_else(self):
        run = self.run_of_two()
        for path in (run / "ranks").glob("rank-*.h5"):
            path.write_text(PAGE)
        self.refused(run, "no rank file could be read", [command for command in COMMANDS if command != "info"])
        done = lockstep("info", run, cwd=self.place)
        self.assertEqual(done.returncode, CANNOT_BE_USED, done.stderr)
        self.assertIn("error: neither a file of Lockstep's nor a trace that it reads", done.stderr)
        self.assertIn("copy it again", done.stderr)
        self.assertNotIn("HDF5", done.stderr)

    def test_one_rank_file_that_is_something_else(self):
        run = self.run_of_two()
        (run / "ranks" / "rank-00001.h5").write_text(PAGE)
        for command in ("analyze", "merge", "report", "info", "export"):
            with self.subTest(command=command):
                done = lockstep(command, run, cwd=self.place)
                self.assertEqual(done.returncode, INCOMPLETE, done.stdout + done.stderr)
        self.assertIn("1 of 2 ranks recorded: nothing is there of rank 1", lockstep("analyze", run, cwd=self.place).stdout)

    def test_two_runs_in_one(self):
        run, other = self.run_of_two(), self.run_of_two("other")
        # A job of four ranks, of which two files are of another run.
        manifest = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps(manifest | {"world_size": 4}))
        for rank in (0, 1):
            mixed = run / f"ranks/rank-{rank + 2:05}.h5"
            shutil.copy(other / f"ranks/rank-{rank:05}.h5", mixed)
            with h5py.File(mixed, "r+") as file:
                file["string_bytes/value"][...] = list(bytes(file["string_bytes/value"]).replace(b"make_run", b"run_2222"))
        done = lockstep("analyze", run, "--json", "-", cwd=self.place)
        self.assertEqual(done.returncode, INCOMPLETE, done.stderr)
        self.assertRegex(json.loads(done.stdout)["verdict"], "^Files of other runs were left out .*run_2222")
        for command in ("merge", "report", "info", "export"):
            with self.subTest(command=command):
                done = lockstep(command, run, cwd=self.place)
                self.assertEqual(done.returncode, INCOMPLETE, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
