#!/usr/bin/env python3
"""`lockstep hang` on what NCCL's RAS would answer of jobs whose fault is known, as text and as JSON: whoever is named is at
fault, what RAS cannot know is said, and dumps and recorded runs are joined.

usage: ras_test.py BUILD_DIR [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import jobs_that_stop
from jobs_that_stop import gpu_stops, host_stops, training
from ras_answers import Answers

LOCKSTEP = pathlib.Path(sys.argv[1]).resolve() / "lockstep"
FORMS = {
    "json": lambda answers: answers.json(),
    "json without commas": lambda answers: answers.json(commas=False),
    "text": lambda answers: answers.text(),
    "verbose": lambda answers: answers.text(verbose=True),
    "text of 2.24": lambda answers: answers.text(per_kind=False),
}


def hang(*words):
    return subprocess.run([LOCKSTEP, "hang", *words], capture_output=True, text=True, timeout=60)


class Ras(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-hang-ras-"))
        self.addCleanup(shutil.rmtree, self.place)

    def write(self, name, text, ago_s=0):
        path = self.place / name
        path.write_text(text)
        then = path.stat().st_mtime - ago_s
        os.utime(path, (then, then))
        return path

    def ask(self, *paths):
        done = hang(*paths, "--json", "-")
        self.assertIn(done.returncode, (0, 3, 4), done.stderr)
        return json.loads(done.stdout), done

    def named(self, answer):
        return sorted({rank for verdict in answer["verdicts"] for rank in verdict["culprits"]})

    def test_nobody_is_named_falsely(self):
        """Every job of NCCL's, in every form: who is named is the one, and of hosts that stop most are."""
        wrong, found, hosts = {}, 0, 0
        for job in jobs_that_stop.all_jobs():
            # Of a job at work one answer shows the same as of one that hangs: that is said beside it.
            if job.style.get("backend", "nccl") != "nccl" or job.without_dump or job.damaged or job.name == "healthy_at_work":
                continue
            answers = Answers(job.play())
            for form, write in FORMS.items():
                if form == "json without commas":
                    continue
                answer, _ = self.ask(self.write("answer", write(answers)))
                named = self.named(answer)
                # Of two ranks, the one without a call is named: counts do not tell that the other has one too many.
                if not set(named) <= set(job.culprits) and job.name != "missing_call_2":
                    wrong[job.name, form] = (named, job.culprits)
                if form == "json" and job.name.startswith("host_"):
                    hosts += 1
                    found += named == job.culprits
        self.assertEqual(wrong, {})
        self.assertGreaterEqual(found, hosts - 4, f"{found} of {hosts}")

    def test_data_and_tensor_groups(self):
        for size, tp, rank, world in ((2, 1, 1, True), (8, 1, 3, True), (8, 2, 5, True), (16, 4, 9, False), (64, 8, 17, False), (512, 8, 300, True)):
            job = host_stops(training(f"host_{size}", size, tp), rank).play()
            answer, done = self.ask(self.write("answer", Answers(job, world=world, nvml=3).json()))
            self.assertEqual([(v["cause"], v["culprits"]) for v in answer["verdicts"][:1]], [("did_not_enter", [rank])], (size, tp, world))
            self.assertEqual(self.named(answer), [rank])
            self.assertEqual(done.returncode, 4)
            self.assertEqual("numbered by host, GPU and process" in done.stderr, not world)

    def test_every_form_of_one_job(self):
        job = host_stops(training("forms", 8), 3).play()
        for form, write in FORMS.items():
            answer, _ = self.ask(self.write("answer", write(Answers(job))))
            self.assertEqual(self.named(answer), [3], form)

    def test_what_it_says(self):
        job = host_stops(training("said", 8), 3).play()
        text = Answers(job).text()
        first, second = self.write("ncclras1", text, ago_s=40), self.write("ncclras2", text)
        said = hang(first, second)
        self.assertEqual(said.returncode, 4, said.stderr)
        self.assertRegex(said.stdout, r"(?m)^HANG  .*on group NCCL 0x27a079b828ff1a\w\w \(ranks 0-7\) waits for rank 3 .*; 7 ranks have waited 40 s$")
        self.assertIn("rank 3 is process 40021 on 10.0.0.1, GPU 3", said.stdout)
        self.assertIn("whether it waits elsewhere is not known", said.stdout)
        self.assertIn(f"from NCCL RAS answers of 8 ranks, {second}", said.stdout)
        self.assertEqual(said.stderr, "")
        self.assertIn("RAS was asked once", hang(first).stderr)

    def test_a_process_that_does_not_answer(self):
        job = training("silent", 16, 4)
        job.frozen.add(("0", 4))
        job.play()
        for dead in (False, True):
            for form, write in FORMS.items():
                answers = Answers(job, silent=() if dead else (9,), dead=(9,) if dead else ())
                answer, done = self.ask(self.write("answer", write(answers)))
                self.assertEqual([(v["cause"], v["culprits"]) for v in answer["verdicts"][:1]], [("unreachable", [9])], (form, dead))
                self.assertEqual(self.named(answer), [9], form)

    def test_a_job_that_runs(self):
        early, late = training("early", 8, steps=9), training("late", 8, steps=9)
        host_stops(early, 2, share=0.3).play()
        host_stops(late, 5, share=0.8).play()
        for write in (FORMS["json"], FORMS["text"]):
            one, two = self.write("one", write(Answers(early)), 30), self.write("two", write(Answers(late)))
            if write is FORMS["json"]:
                one.write_text(Answers(early).json(told="2026-03-01 09:59:30"))
            answer, done = self.ask(one, two)
            self.assertEqual(answer["verdicts"], [], done.stderr)
            # Of the text it is not known how far those are who agree.
            self.assertEqual(done.returncode, 0 if write is FORMS["json"] else 3, done.stderr)

    def test_everybody_alike(self):
        job = training("alike", 8, 2).play()
        for form, write in FORMS.items():
            answer, done = self.ask(self.write("answer", write(Answers(job))))
            self.assertEqual((answer["verdicts"], done.returncode), ([], 3), form)
        path = self.write("first", Answers(job).json(told="2026-03-01 09:59:00"))
        answer, done = self.ask(path, self.write("second", Answers(job).json()))
        self.assertIn("all are inside an operation or all hosts are elsewhere", done.stderr)

    def test_states_and_errors(self):
        job = training("states", 8).play()
        answers = Answers(job, gone={("0", 1)}, states={("0", 2): "FINALIZE", ("0", 3): "ABORT"}, errors={4: 1})
        for form, write in FORMS.items():
            _, done = self.ask(self.write("answer", write(answers)))
            self.assertRegex(done.stderr, r"rank 4 reports unhandled CUDA error", form)
            self.assertRegex(done.stderr, r"runs on ranks 0, 4, 5, 6, 7, is being ended on rank 2, is being aborted on rank 3, does not exist on rank 1",
                             form)

    def test_with_flight_recorder_dumps(self):
        job = gpu_stops(training("both", 8, depth=4), 6)
        job.play().write(self.place / "both")
        (self.place / "both/ncclras.json").write_text(Answers(job).json())
        answer, done = self.ask(self.place / "both")
        self.assertEqual([source["format"] for source in answer["sources"]], ["flight_recorder", "nccl_ras"])
        self.assertEqual(self.named(answer), [6])
        # A job whose ranks RAS does not know is not mixed with another's.
        (self.place / "both/ncclras.json").write_text(Answers(training("other", 8, 2).play(), world=False).json())
        answer, done = self.ask(self.place / "both")
        self.assertEqual([source["format"] for source in answer["sources"]], ["flight_recorder"])
        self.assertIn("so they are left out", done.stderr)

    def test_damaged_files_and_hostile_names(self):
        job = host_stops(training("damaged", 8), 3).play()
        text = Answers(job).json()
        self.write("ncclras1.json", text[:len(text) // 2], ago_s=10)
        self.write("ncclras2.json", text.replace('"10.0.0.1"', r'"a\nHANG  b\u001b[31m"'))
        said = hang(self.place)
        self.assertEqual(said.returncode, 4)
        self.assertIn("ncclras1.json: the answer of RAS is cut off", said.stderr)
        self.assertEqual(said.stdout.count("\nHANG") + said.stdout.startswith("HANG"), 1, said.stdout)
        self.assertNotIn("\x1b", said.stdout)
        self.write("ncclras2.json", "")
        done = hang(self.place)
        self.assertEqual(done.returncode, 2)
        self.assertIn("ncclras1.json", done.stderr)

    def test_other_commands_say_who_reads_it(self):
        path = self.write("answer.json", Answers(training("other", 4).play()).json())
        done = subprocess.run([LOCKSTEP, "analyze", path], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("these are NCCL RAS answers", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
