"""lockstep whatif and the prices of analyze on generated runs whose healthy twin is known: generated_test.py BUILD_DIR [-v] CASE"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs

# Stages of a pipeline do forward and backward passes in another order each, and two of them may do as many.
TWO_STAGES = """
let F 1
ranks 4
steps 12
network alpha=20us bandwidth=20GB/s
comm tp block=2
slow rank=3 factor=$F
step
  pipeline stages=2 microbatches=4 forward=2ms backward=4ms bytes=4MiB tensor=tp tensorbytes=1MiB
  optimizer 1ms
end
"""
STAGES_OF_ONE = """
let F 1
ranks 4
steps 12
jitter 0.3%
network alpha=20us bandwidth=20GB/s
slow rank=2 factor=$F
step
  pipeline stages=4 microbatches=6 forward=2ms backward=4ms bytes=4MiB
  optimizer 1ms
end
"""
IN_THREE_WAYS = """
let F 1
ranks 16
steps 12
network alpha=20us bandwidth=20GB/s
jitter 0.3%
comm dp block=4 stride=2
comm tp block=2
slow rank=9 factor=$F
step
  pipeline stages=4 microbatches=6 forward=2ms backward=4ms bytes=4MiB tensor=tp tensorbytes=1MiB data=dp databytes=50MiB
  optimizer 1ms
end
"""
RING = """
let F 1
ranks 6
steps 20
network alpha=20us bandwidth=5GB/s skew=2us
jitter 1%
slow rank=3 factor=$F
step
  compute 6ms
  ring 2MiB
  compute 3ms
  halo 1MiB
end
"""
ONE_RANK = "ranks 1\nsteps 12\nstep\n  forward 3ms\n  backward 6ms\nend\n"


class Case(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)

    def make(self, name, text, **values):
        place = pathlib.Path(self.place.name)
        (place / f"{name}.trace").write_text(text)
        sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        done = jobs.run([jobs.BUILD / "make_run", place / f"{name}.trace", place / name, *sets], place)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return place / name

    def lockstep(self, *words, code=0):
        done = jobs.run([jobs.LOCKSTEP, *words, "-q"], "/")
        self.assertEqual(done.returncode, code, (done.stdout + done.stderr).decode())
        return json.loads(done.stdout) if "-" in words else (done.stdout + done.stderr).decode()

    def analyze(self, run):
        return self.lockstep("analyze", run, "--json", "-")

    def gain(self, run, *options):
        return self.lockstep("whatif", run, *options, "--json", "-")["answers"][0]["gain_ns"]


class Pipelines(Case):
    def check(self, text, slow, healthy):
        was, now = self.make("healthy", text), self.make("slow", text, F=1.3)
        cost = self.analyze(now)["summary"]["step_ns_mean"] - self.analyze(was)["summary"]["step_ns_mean"]
        self.assertAlmostEqual(self.gain(now, "--without-rank", slow) / cost, 1, delta=0.05)
        # Nothing is gained by a rank that slows nobody; beside none but the slow one it would be as slow.
        for rank in healthy:
            self.assertLess(self.gain(now, "--without-rank", rank), 0.1 * cost, rank)
        analysis = self.analyze(now)
        (straggler,) = analysis["stragglers"]
        self.assertEqual((straggler["rank"], straggler["cause"]), (slow, "compute"))
        (finding,) = [f for f in analysis["findings"] if f["id"] == "straggler.arrival"]
        # One price, whoever is asked.
        self.assertEqual(straggler["price_ns_per_step"], finding["saves_ns_per_step"])
        self.assertEqual(self.gain(now, "--without-stragglers"), finding["saves_ns_per_step"])
        self.assertEqual(self.analyze(was)["stragglers"], [])

    def test_two_stages(self):
        self.check(TWO_STAGES, 3, [0, 1, 2])

    def test_stages_of_one_rank(self):
        self.check(STAGES_OF_ONE, 2, [0, 1, 3])

    def test_parallel_in_three_ways(self):
        self.check(IN_THREE_WAYS, 9, [0, 8, 12])

    def test_ring(self):
        self.check(RING, 3, [0, 2, 5])


class Refused(Case):
    """Of one rank nothing is said about others, and no advice is given that it cannot follow."""

    def test_the_job_has_one(self):
        run = self.make("one", ONE_RANK)
        for options in (["--without-rank", "0"], ["--without-stragglers"], ["--equal-ranks"], []):
            with self.subTest(options):
                said = self.lockstep("whatif", run, *options, code=1)
                self.assertRegex(said, r"^error: .*the job has one rank: .+\n  .+\n  try: ask about a run of several ranks\n$")
        # A rank that there is not is another mistake.
        self.assertIn("the run has no rank 7", self.lockstep("whatif", run, "--without-rank", "7", code=2))

    def test_one_of_several_was_recorded(self):
        run = self.make("two", "ranks 3\nmissing rank=1\nmissing rank=2\nsteps 12\nstep\n  forward 3ms\n  allreduce 1MiB\nend\n")
        for options in (["--without-rank", "0"], ["--without-stragglers"], ["--equal-ranks"]):
            with self.subTest(options):
                said = self.lockstep("whatif", run, *options, code=1)
                self.assertRegex(said, r"^error: of 3 ranks only rank 0 was recorded: .+\n  .+\n  try: record all ranks, or give the traces of all\n$")

    def test_nobody_is_named(self):
        run = self.make("equal", "ranks 3\nsteps 12\nstep\n  forward 3ms\n  allreduce 1MiB\nend\n")
        said = self.lockstep("whatif", run, "--without-stragglers", code=1)
        self.assertRegex(said, r"^error: the analysis names no straggler in this run\n  .+\n  try: --without-rank R")
        self.assertIn("no rank is left to compare with", self.lockstep("whatif", run, "--without-rank", "0", "1", "2", code=2))
        # Ranks are a set: named twice they are one, in any order they are the same list, and a long list stays a line.
        self.assertRegex(self.lockstep("whatif", run, "--without-rank", "1,0", "0"), r"(?m)^without what slows ranks 0,1 ")
        self.assertRegex(self.lockstep("whatif", run, "--without-rank", "2", "2", "2"), r"(?m)^without what slows rank 2 ")


class Shown(Case):
    """The last column of the text is an interval, or says why there is none."""

    def test_intervals(self):
        alike = self.make("alike", "ranks 2\nsteps 12\nslow rank=1 factor=1.2\nstep\n  forward 3ms\n  allreduce 1MiB\nend\n")
        answers = self.lockstep("whatif", alike, "--without-rank", "1", "--json", "-")["answers"]
        self.assertGreater(answers[0]["gain_ns"], 500_000)
        for end in ("low_ns", "high_ns", "gain_low_ns", "gain_high_ns"):
            self.assertIsNone(answers[0][end])
        self.assertRegex(self.lockstep("whatif", alike, "--without-rank", "1"), r"(?m)^without what slows rank 1 .* all steps alike$")
        few = self.make("few", "ranks 2\nsteps 2\njitter 9%\nstep\n  forward 3ms\n  allreduce 1MiB\nend\n")
        self.assertRegex(self.lockstep("whatif", few, "--without-rank", "1"), r"(?m)^without what slows rank 1 .* too few steps$")
        varied = self.make("varied", "ranks 2\nsteps 20\njitter 9%\nstep\n  forward 3ms\n  allreduce 1MiB\nend\n")
        self.assertRegex(self.lockstep("whatif", varied, "--equal-ranks"), r"(?m)^equal work on all ranks .* [\d.]+ ms - +[\d.]+ ms$")


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result)
