#!/usr/bin/env python3
"""`lockstep hang` on dumps of jobs whose fault is known: the right cause, the right ranks, and nobody else.

usage: hang_test.py BUILD_DIR SHARED_DIR [unittest arguments]
"""
import gzip
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest

import jobs_that_stop

BUILD, SHARED = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
LOCKSTEP = BUILD / "lockstep"


def hang(*words, code=None):
    done = subprocess.run([LOCKSTEP, "hang", *words], capture_output=True, text=True, timeout=300)
    assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


class Hang(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-hang-"))
        self.addCleanup(shutil.rmtree, self.place)

    def judge(self, job):
        """What is wrong with the answer to this job; "" if nothing."""
        where = self.place / job.name
        job.play().write(where)
        done = hang(where, "--json", "-")
        answer = json.loads(done.stdout)
        said = [(verdict["cause"], verdict["culprits"]) for verdict in answer["verdicts"]]
        missing = bool(job.without_dump or job.damaged)
        want = 4 if job.hangs else 3 if missing else 0
        if done.returncode != want:
            return f"exit code {done.returncode}, not {want}: {said} {done.stderr}"
        if not job.hangs:
            return "" if not said else f"said {said}"
        named = sorted({rank for _, culprits in said for rank in culprits})
        if named != job.culprits or not said or said[0][0] != job.cause:
            return f"said {said}, and it is {job.cause} {job.culprits}"
        return ""

    def test_every_job(self):
        jobs = jobs_that_stop.all_jobs()
        self.assertGreaterEqual(len(jobs), 40)
        self.assertEqual(len({job.name for job in jobs}), len(jobs))
        wrong = {job.name: trouble for job in jobs if (trouble := self.judge(job))}
        self.assertEqual(wrong, {}, f"{len(wrong)} of {len(jobs)}")

    def test_a_large_job(self):
        self.assertEqual(self.judge(jobs_that_stop.large()), "")

    def test_the_dumps_of_a_real_job(self):
        dumps = SHARED / "traces/flight_recorder_16rank"
        if not dumps.is_dir():
            self.skipTest(f"{dumps} is not here")
        answer = json.loads(hang(dumps, "--json", "-", code=4).stdout)
        self.assertEqual([(v["cause"], v["culprits"]) for v in answer["verdicts"]], [("behind_on_gpu", [9, 14])])

    def test_what_it_says(self):
        job = jobs_that_stop.host_stops(jobs_that_stop.training("said", 8), 5)
        job.play().write(self.place / "said")
        said = hang(self.place / "said", code=4).stdout
        self.assertRegex(said, r"(?m)^HANG  \S+ #\d+ of \S+ k?B on group \S+ \(ranks 0-7\) waits for rank 5; 7 ranks have waited \S+ (s|min)$")
        self.assertIn("rank 5 did not enter: its last call in this group was", said)
        self.assertIn("train.py:4", said)
        self.assertIn("→ ", said)

    def test_one_damaged_file_does_not_spoil_the_others(self):
        job = jobs_that_stop.host_stops(jobs_that_stop.training("damaged", 4), 2)
        job.damaged.add(0)
        job.play().write(self.place / "damaged")
        (self.place / "damaged/_dump_9").write_bytes(b"")
        done = hang(self.place / "damaged", code=4)
        self.assertIn("waits for rank 2", done.stdout)
        self.assertRegex(done.stderr, r"_dump_0: the pickle is (cut off|damaged)")
        self.assertIn("_dump_9: the file is empty", done.stderr)

    def test_code_in_a_file_is_not_run(self):
        class Evil:
            def __reduce__(self):
                return os.system, (f"touch {self.path}",)
        evil = Evil()
        evil.path = self.place / "ran"
        for protocol in range(2, 6):
            path = self.place / f"_dump_{protocol}"
            path.write_bytes(pickle.dumps({"entries": [evil], "pg_config": {}, "pg_status": {}}, protocol=protocol))
            done = hang(path, code=2)
            self.assertIn("an object that is no plain value", done.stderr)
        self.assertFalse(evil.path.exists())

    def test_two_dumps_of_one_rank(self):
        job = jobs_that_stop.host_stops(jobs_that_stop.training("twice", 4), 2)
        job.play().write(self.place / "twice")
        shutil.copy2(self.place / "twice/_dump_1", self.place / "twice/nccl_trace_rank_1")
        done = hang(self.place / "twice", code=4)
        self.assertIn("waits for rank 2", done.stdout)
        self.assertIn("another dump of rank 1 is used", done.stderr)

    def test_an_age_that_a_copy_has_lost(self):
        job = jobs_that_stop.host_stops(jobs_that_stop.training("copied", 4), 2)
        job.play().write(self.place / "copied")
        for path in (self.place / "copied").iterdir():
            os.utime(path, (0, 0))
        self.assertIn("3 ranks wait\n", hang(self.place / "copied", code=4).stdout)

    def test_work_under_way_is_no_wait_unless_asked(self):
        job = jobs_that_stop.host_stops(jobs_that_stop.training("young", 4), 2).styled(age_s=1)
        job.play().write(self.place / "young")
        self.assertIn("nothing hangs", hang(self.place / "young", code=0).stdout)
        hang(self.place / "young", "--least-wait", "0", code=4)

    def test_names_from_dumps_cannot_make_lines(self):
        job = jobs_that_stop.host_stops(jobs_that_stop.training("names", 4), 2)
        job.groups["0"] = ("a\nHANG  b\x1b[31m", job.groups["0"][1])
        name = job.group("c\nHANG  d\x1b[2J", range(4))
        job.all_call(name, "all_reduce")
        job.host_ends = {2: len(job.programs[2]) - 1}
        job.play().write(self.place / "names")
        said = hang(self.place / "names", code=4).stdout
        self.assertEqual(said.count("\nHANG") + said.startswith("HANG"), 1, said)
        self.assertNotIn("\x1b", said)

    def test_other_commands_say_who_reads_dumps(self):
        job = jobs_that_stop.host_stops(jobs_that_stop.training("dumps", 4), 2)
        job.play().write(self.place / "dumps")
        for words in (["analyze", self.place / "dumps"], ["analyze", self.place / "dumps/_dump_0"], ["report", self.place / "dumps"],
                      ["analyze", *sorted((self.place / "dumps").iterdir())]):
            done = subprocess.run([LOCKSTEP, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("these are Flight Recorder dumps", done.stderr)
            self.assertIn("lockstep hang", done.stderr)

    def test_what_is_named_like_the_dumps_and_is_none(self):
        """Every such file is named with its reason, and what its rank did is not known."""
        for number, (name, data, reason) in enumerate((
                ("rank_3.json", b'{"ok": false, "reason": "no recorder"}', "(it says: no recorder)"),
                ("rank_3.json", b"", "rank_3.json: "),
                ("rank_3.json", b'{"version": "2.9", "entri', "rank_3.json: "),
                ("rank_3.json", b'{"traceEvents": []}', "neither a Flight Recorder dump"),
                ("rank_3.json.gz", gzip.compress(b"{}"), "rank_3.json.gz: "))):
            place = self.place / str(number)
            jobs_that_stop.training("others", 4).play().write(place)
            for rank in range(4):
                (place / f"_dump_{rank}").rename(place / f"rank_{rank}.json")
            (place / "rank_3.json").unlink()
            (place / name).write_bytes(data)
            (place / "train.log").write_text("not a word of dumps")
            done = hang(place, code=3)
            self.assertIn(reason, done.stderr)
            self.assertIn(name, done.stderr)
            self.assertNotIn("train.log", done.stderr)
            self.assertIn("whether anything hangs is not known: nothing tells what rank 3 is inside of", done.stdout)

    def test_one_kind_of_file_that_cannot_be_read(self):
        job = jobs_that_stop.host_stops(jobs_that_stop.training("kinds", 4), 2)
        job.play().write(self.place / "kinds")
        (self.place / "kinds/ncclras.json").write_text("connection refused")
        done = hang(self.place / "kinds", code=4)
        self.assertIn("waits for rank 2", done.stdout)
        self.assertIn("ncclras.json", done.stderr)

    def test_dumps_of_some_ranks(self):
        job = jobs_that_stop.training("some", 8)
        job.play().write(self.place / "some")
        self.assertIn("nothing hangs", hang(self.place / "some", code=0).stdout)
        for rank in range(2, 8):
            (self.place / f"some/_dump_{rank}").unlink()
        done = hang(self.place / "some", "--json", self.place / "some.json", code=3)
        self.assertNotIn("nothing hangs", done.stdout)
        self.assertIn("whether anything hangs is not known: nothing tells what ranks 2-7 are inside of", done.stdout)
        self.assertIsNone(json.loads((self.place / "some.json").read_text())["hangs"])

    def test_what_is_no_dump(self):
        (self.place / "empty").mkdir()
        self.assertIn("there is no dump", hang(self.place / "empty", code=2).stderr)
        self.assertIn("no such file", hang(self.place / "nowhere", code=2).stderr)
        (self.place / "text").write_text("hello")
        hang(self.place / "text", code=2)
        (self.place / "trace_0.json").write_text('{"traceEvents": []}')
        self.assertIn("neither a Flight Recorder dump (entries, process groups) nor an answer of NCCL's RAS", hang(self.place / "trace_0.json", code=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
