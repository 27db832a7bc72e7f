"""What `lockstep analyze` says first of what people give it, word by word, and its exit code: first_sentence_test.py BUILD_DIR SHARED_DIR [-v]"""

import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs

SHARED = pathlib.Path(sys.argv[2])
JOB = """
ranks 8
steps 8
gpu
late rank=2 by=2ms
network alpha=20us bandwidth=40GB/s skew=1us
jitter 2%
step
  input 300us
  ddp buckets=8MiB,8MiB forward=4ms backward=8ms
  kernel 500us name=adam count=5
end
"""
ANOTHER = JOB.replace("ranks 8", "ranks 2\nepoch 9000000s").replace("late rank=2 by=2ms\n", "")
# Kernels before the steps, and none in them.
IDLE = "ranks 1\nsteps 6\ngpu\nsetup\n  kernel 5us count=3\nend\nstep\n  host 20ms\nend\n"


class FirstSentence(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def traces(self, name, text, *words):
        (self.place / "spec").write_text(text)
        done = jobs.run([jobs.BUILD / "make_run", "spec", name, *(words or ("--kineto", "nccl=seq"))], self.place)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return sorted((self.place / name).glob("*.json"))

    def said(self, code, *given):
        done = jobs.run([jobs.LOCKSTEP, "analyze", "-q", *given], self.place)
        self.assertEqual(done.returncode, code, (done.stdout + done.stderr).decode())
        return done.stdout.decode(), done.stderr.decode()

    def first(self, code, *given):
        """The paragraph under the head."""
        text, _ = self.said(code, *given)
        return " ".join(text.split("\n\n")[1].split())

    def refused(self, text, *given):
        out, error = self.said(2, *given)
        self.assertEqual((out, error), ("", text))

    def test_empty_directory(self):
        (self.place / "empty").mkdir()
        self.refused("error: this directory is empty: there is nothing to read\n  empty\n"
                     "  try: name a run's directory, which holds manifest.json and ranks/, or traces of other tools\n", "empty")

    def test_unrelated_directory(self):
        (self.place / "home").mkdir()
        (self.place / "home/notes.txt").write_text("hello\n")
        (self.place / "home/config.json").write_text('{"learning_rate": 0.1}\n')
        self.refused("error: there is no run in this directory, and no trace that can be read\n  home\n"
                     "  try: name a run's directory, which holds manifest.json and ranks/, or traces of other tools\n", "home")

    def test_a_browser_s_trace(self):
        event = {"cat": "devtools.timeline", "name": "RunTask", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "args": {}}
        (self.place / "trace.json").write_text(json.dumps({"traceEvents": [event] * 3}))
        self.refused("error: none of its 3 events is of a kind that is understood (categories of no use: devtools.timeline)\n"
                     "  trace.json\n  try: name traces that a profiler of docs/importing.md wrote while the job ran\n", "trace.json")

    def test_one_rank_of_eight(self):
        (_, _, _, one, *_) = self.traces("eight", JOB)
        self.assertEqual(re.sub(r"[\d.]+ ms", "N ms", self.first(3, one)),
                         "1 of 8 ranks recorded: nothing is there of ranks 0-2 and 4-7, and waiting for them is not seen. There is "
                         "nothing to compare. Communication is exposed for N ms of each N ms step: how much of it is waiting for "
                         "ranks that are not here, and how much transfer, is not known.")

    def test_one_rank_of_eight_of_others(self):
        real = SHARED / "traces/tracelens_mi300_resnet_rank0of8"
        if not real.is_dir():
            self.skipTest("no reference traces (LOCKSTEP_SHARED_DIR)")
        shutil.copytree(real, self.place / "real")
        self.assertEqual(self.first(3, "real"),
                         "1 of 8 ranks recorded: nothing is there of ranks 1-7, and waiting for them is not seen. There is nothing "
                         "to compare. Communication is exposed for 18.5 ms of each 28.9 ms step: how much of it is waiting for "
                         "ranks that are not here, and how much transfer, is not known.")

    def test_two_runs(self):
        self.traces("eight", JOB)
        for path in self.traces("two", ANOTHER):
            path.rename(self.place / "eight" / ("old_" + path.name))
        said = self.first(3, "eight")
        self.assertTrue(said.startswith("Files of other runs were left out (eight/old_worker0_step_8."), said)
        for word in ("eight/old_worker1_step_8.", "recorded 104 days after", "says the job has 2 ranks, not 8", "the 8 files of the run"):
            self.assertIn(word, said)
        self.assertRegex(said, r"\)\. Rank 2 holds everyone back: without what slows it, each [\d.]+ ms step would be 1\.\d+ ms shorter \(replayed\)\.$")

    def test_nothing_in_the_steps(self):
        idle = ("No kernel was launched in any of the 6 marked steps: the GPU is idle for all of them, and what was recorded outside "
                "of them is not judged.")
        self.traces("one", IDLE)
        self.assertEqual(self.first(3, "one"), idle)
        self.traces("two", IDLE.replace("ranks 1", "ranks 2"))
        self.assertIn("2 ranks, but no communication was recorded: that is suspicious. " + idle, self.first(3, "two"))
        self.traces("once", IDLE.replace("steps 6", "steps 1"))
        self.assertIn("No kernel was launched in the only step that is marked: the GPU is idle for all of it", self.first(3, "once"))

    def test_steps_that_hold_nothing(self):
        """A profiler that is stopped as its step begins writes the step and nothing else."""
        for ranks in (1, 3):
            place = self.place / f"begun{ranks}"
            place.mkdir()
            for rank in range(ranks):
                step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 1, "tid": 1, "ts": 10, "dur": 17}
                (place / f"rank{rank}.json").write_text(json.dumps({
                    "schemaVersion": 1, "traceEvents": [step],
                    "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": ranks}}))
            self.assertEqual(self.first(3, place.name), "Nothing was recorded within the only step of "
                             f"{'1 rank' if ranks == 1 else '3 ranks'}: there is nothing to analyse.")

    def test_an_idle_window(self):
        """Runs whose GPU does next to nothing are not called healthy, whatever there is to say of them."""
        for name, body, said in (("host", "  host 20ms\n", "the recording does not tell why"),
                                 ("range", "  push load\n  host 20ms\n  pop\n  kernel 3us\n", 'before the work of a step begins, where input is loaded, most in "load".'),
                                 ("copies", "  host 20ms\n  copy h2d 1KiB\n", "The GPU is idle for 100 % of the time"),
                                 ("input", "  input 20ms\n  kernel 3us\n", "nput")):
            for words in (("--kineto", "nccl=seq"), ("--jobs", "1")):
                if name == "host" and words[0] == "--kineto":
                    continue  # Its steps hold nothing, as above.
                with self.subTest(name, words=words):
                    self.traces(name + words[0], IDLE.replace("  host 20ms\n", body), *words)
                    text = self.first(0, name + words[0])
                    self.assertNotRegex(text, "[Nn]othing found")
                    self.assertIn(said, text)

    def test_how_to_record_what_is_not_told(self):
        """The advice is for what recorded the run, and names what the traces hold already."""
        body = IDLE.replace("  host 20ms\n", "  host 20ms\n  copy h2d 1KiB\n")
        self.traces("ours", body, "--jobs", "1")
        self.assertIn("→ name parts of the step (NVTX ranges, lockstep_range_push)", self.action("ours"))
        theirs = self.traces("theirs", body)
        self.assertIn("→ see what it does: torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True) and "
                      "lockstep import kineto --python-functions TRACES, or record_function(...) around parts of the step",
                      self.action("theirs"))
        for path in theirs:
            trace = json.loads(path.read_text())
            trace["traceEvents"].append({"ph": "X", "cat": "python_function", "name": "train.py(7): load", "pid": 1, "tid": 1,
                                         "ts": trace["traceEvents"][-1].get("ts", 1), "dur": 1, "args": {}})
            (self.place / "stack").mkdir(exist_ok=True)
            (self.place / "stack" / path.name).write_text(json.dumps(trace))
        self.assertIn("→ see what it does: lockstep import kineto --python-functions TRACES (the traces hold the calls of Python functions)",
                      self.action("stack"))
        # What is advised can be done.
        done = jobs.run([jobs.LOCKSTEP, "import", "kineto", "--python-functions", "stack", "-o", "named", "-q"], self.place)
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def action(self, given):
        return " ".join(self.said(0, given)[0].split())


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False).result)
