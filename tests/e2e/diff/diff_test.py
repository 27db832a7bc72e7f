"""lockstep diff on run directories of make_run: what was put in is said, in every form, with the right exit code."""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

SPEC = """
ranks 4
steps 40
warmup 2
seed %(seed)d
jitter 1%%
network alpha=20us bandwidth=5GB/s
%(more)s
step
  input 1ms
  forward 10ms
  backward 20ms buckets=%(buckets)s
  waitall
  optimizer 1ms
end
"""
# The same on GPUs, where phases are of kernels.
GPU = """
ranks 4
steps 40
warmup 2
gpu
seed %(seed)d
jitter 1%%
network alpha=20us bandwidth=40GB/s
%(more)s
step
  input 1ms
  ddp buckets=%(buckets)s forward=10ms backward=20ms
  kernel 1ms name=adam
  sync
end
"""
# 166 ms a step, and 110 ms without its input.
FEW = """
let I 56ms
ranks 2
steps 3
gpu
seed 1
jitter 1%
network alpha=20us bandwidth=40GB/s
step
  input $I
  ddp buckets=8MiB forward=40ms backward=60ms
  kernel 2ms name=adam count=5
  sync
end
"""

NAMES = """
let ADAM adam
let NORM 4
let SOFTMAX 600us
let SPAN check
ranks 2
steps 3
gpu
seed 1
jitter 2%
network alpha=20us bandwidth=40GB/s
step
  input 200us
  ddp buckets=8MiB forward=9ms backward=16ms
  push $SPAN
  kernel 150us name=norm count=$NORM
  kernel $SOFTMAX name=softmax count=3
  pop
  kernel 700us name=$ADAM count=2
  kernel 300us name=clip count=2
  kernel 300us name=scale count=2
  kernel 300us name=loss
  sync
end
"""


def setUpModule():
    global PLACE
    PLACE = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-diff-test-"))


def tearDownModule():
    shutil.rmtree(PLACE, True)


def run(name, seed=1, more="", buckets="1MiB,4MiB,4MiB", *options, text=SPEC):
    directory = PLACE / name
    if not directory.exists():
        spec = PLACE / (name + ".run")
        spec.write_text(text % {"seed": seed, "more": more, "buckets": buckets})
        done = jobs.run([jobs.BUILD / "make_run", spec, directory, *options], cwd=PLACE)
        assert done.returncode == 0, done.stderr
    return directory


def diff(*arguments):
    return jobs.run([jobs.LOCKSTEP, "diff", "-q", *arguments], cwd=PLACE)


def compare(*arguments):
    done = diff("--json", "-", *arguments)
    return done.returncode, json.loads(done.stdout)


class Diff(unittest.TestCase):
    def test_nothing_changed(self):
        code, report = compare(run("a"), run("b", 2))
        self.assertEqual((code, report["verdict"], report["regression"]), (0, "same", False))
        self.assertEqual(report["schema"], "lockstep.diff/2")
        self.assertEqual(report["causes"], [])

    def test_slow_rank(self):
        slow = run("slow", 3, "slow rank=2 factor=1.1")
        code, report = compare(run("a"), slow)
        self.assertEqual((code, report["verdict"]), (4, "worse"))
        self.assertEqual([cause["rank"] for cause in report["causes"] if cause["kind"] == "rank"], [2])
        step = report["measures"][0]
        self.assertEqual(step["name"], "step_ns")
        self.assertGreater(step["difference_low"], 0)
        self.assertLess(step["difference_low"], step["difference"])
        self.assertAlmostEqual(step["difference"], step["new"]["mean"] - step["base"]["mean"], delta=1)
        # The other way round it is better, and no regression; a limit decides.
        self.assertEqual(compare(slow, run("a"))[0], 0)
        self.assertEqual(compare(slow, run("a"))[1]["verdict"], "better")
        self.assertEqual(compare(run("a"), slow, "--fail-on", "step_ns:+50%")[0], 0)

    def test_the_limit_decides_the_exit_code_only(self):
        slow = run("little", 3, "slow rank=2 factor=1.04")
        for limit, exit_code in (("step_ns:+10%", 0), ("step_ns:+1%", 4), ("step_ns:+100us", 4)):
            code, report = compare(run("a"), slow, "--fail-on", limit)
            self.assertEqual((code, report["verdict"], report["regression"]), (exit_code, "worse", exit_code == 4), limit)
            self.assertEqual(report["measures"][0]["beyond_limit"], exit_code == 4, limit)
            self.assertRegex(report["sentence"], r"^A step is [\d.]+ \S+ slower: \S+ ms became \S+ ms \(\+[\d.]+ %, interval \+[\d.]+ to \+[\d.]+ %\)")
        text = diff(run("a"), slow, "--fail-on", "step_ns:+10%").stdout.decode()
        self.assertRegex(text.splitlines()[-1], r"^  no regression: step_ns \+[\d.]+ % \(limit \+10 %\)$")
        self.assertEqual(compare(slow, run("a"))[1]["sentence"].split(":")[0].split()[-1], "faster")
        self.assertRegex(compare(run("a"), run("b", 2))[1]["sentence"], r"^No difference is shown: a step takes ")

    def test_a_phase_of_one_rank(self):
        """Where one rank's backward takes longer, that is said of this rank and this phase; of all ranks it is no rank's."""
        for text, at, way in ((SPEC, "backward", "outside communication"), (GPU, "backward_gemm", "kernels")):
            def job(name, seed, slow, text=text, at=at):
                more = "\n".join(f"slow rank={rank} factor=1.12 at={at}" for rank in slow)
                return run(f"{name}_{at}", seed, more, text=text)
            base, slow = job("phases", 1, ()), job("slow_phase", 2, (3,))
            own = [cause for cause in compare(base, slow)[1]["causes"] if cause["kind"] == "rank_phase"]
            self.assertEqual([(cause["rank"], cause["what"]) for cause in own], [(3, "backward")], own)
            self.assertRegex(own[0]["sentence"], rf"^rank 3's backward \({way}\) grew from [\d.]+ ms to [\d.]+ ms per step \(\+1[12]\.\d %\)$")
            self.assertAlmostEqual(own[0]["change_ns_per_step"], 2.4e6, delta=0.15e6)
            low, high = own[0]["interval_ns"]
            self.assertTrue(0 < low < own[0]["change_ns_per_step"] < high, own)
            causes = compare(base, job("slow_all", 3, range(4)))[1]["causes"]
            self.assertEqual([cause["sentence"] for cause in causes if cause["kind"] == "rank_phase" and cause["rank"] is not None], [])
            self.assertEqual(len([cause for cause in causes if cause["kind"] in ("phase", "rank_phase") and cause["what"] == "backward"]), 1, causes)
            # Through a baseline the same.
            self.assertEqual(diff(base, "--save-baseline", "phases.json").returncode, 0)
            self.assertIn(own[0]["sentence"], [cause["sentence"] for cause in compare("phases.json", slow)[1]["causes"]])

    def test_one_run_twice(self):
        """By its directory, another name of it, its analysis, and a copy; a baseline of it is compared."""
        base = run("a")
        (PLACE / "link").is_symlink() or (PLACE / "link").symlink_to(base)
        shutil.copytree(base, PLACE / "copy", dirs_exist_ok=True)
        jobs.run([jobs.LOCKSTEP, "analyze", "-q", base], cwd=PLACE)
        self.assertEqual(diff(base, "--save-baseline", "same.json").returncode, 0)
        for other in (base, PLACE / "link", PLACE / "copy", base / "analysis.json"):
            done = diff(base, other)
            self.assertEqual((done.returncode, done.stdout), (2, b""), done.stderr)
            lines = done.stderr.decode().splitlines()
            self.assertEqual((lines[0], len(lines)), ("error: BASE and NEW are one run, which cannot differ from itself", 3))
        self.assertEqual(diff("same.json", "same.json").returncode, 2)
        self.assertEqual(compare("same.json", base)[1]["verdict"], "same")

    def test_little_is_no_crash(self):
        """One rank, one step, none, in every combination."""
        small = {"one_rank": ["ranks=1"], "one_step": ["steps=1"], "one_of_both": ["ranks=1", "steps=1"], "warmup": ["steps=2"]}
        made = [run("a")]
        for name, sets in small.items():
            made.append(run(name, 9, "", "9MiB", *[word for value in sets for word in ("--set", value)]))
        made.append(run("no_steps", 9, "marks off", "9MiB", "--set", "steps=1"))
        for base in made:
            for new in made:
                if base == new:
                    continue
                done = diff(base, new, "--other-gpus")
                self.assertIn(done.returncode, (0, 1, 3, 4), (base, new, done.stderr))
                if done.returncode == 1:
                    self.assertRegex(done.stderr.decode(), r"^error: these runs cannot be compared: ")
                    self.assertEqual(done.stderr.count(b"\n"), 3)

    def test_text_and_markdown(self):
        slow = run("slow", 3, "slow rank=2 factor=1.1")
        done = diff(run("a"), slow, "--markdown", "summary.md", "--json", "report.json")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("rank 2", done.stdout.decode())
        self.assertIn("regression: step_ns", done.stdout.decode())
        self.assertIn("| step\\_ns |", (PLACE / "summary.md").read_text())
        self.assertEqual(json.loads((PLACE / "report.json").read_text())["verdict"], "worse")
        self.assertTrue(diff(run("a"), slow, "--markdown", "-").stdout.startswith(b"### Lockstep: regression"))

    def test_other_buckets(self):
        _, report = compare(run("a"), run("one", 4, buckets="9MiB"))
        (cause,) = [cause for cause in report["causes"] if cause["kind"] == "buckets"]
        self.assertEqual(cause["what"], "all-reduce")
        self.assertIn("2 x 4.19 MB + 1 x 1.05 MB became 1 x 9.44 MB", cause["sentence"])

    def test_incomparable(self):
        done = diff(run("a"), run("eight", 5, "let x 0\n", "9MiB", "--set", "ranks=8"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("4 ranks against 8 ranks", done.stderr.decode())
        self.assertEqual(done.stderr.count(b"\n"), 3, done.stderr)
        self.assertEqual(done.stdout, b"")
        done = diff(run("a"), run("unmarked", 6, "marks off"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("different kinds of steps", done.stderr.decode())

    def test_too_few_steps(self):
        code, report = compare(run("a"), run("short", 7, "slow rank=1 factor=1.01", "9MiB", "--set", "steps=15"))
        self.assertEqual((code, report["verdict"]), (0, "cannot tell"))
        self.assertIn("20 complete steps", report["sentence"])
        # A large change needs fewer.
        code, report = compare(run("a"), run("shorter", 7, "slow rank=1 factor=1.5", "9MiB", "--set", "steps=8"))
        self.assertEqual((code, report["verdict"]), (4, "worse"))
        self.assertIn("steps and 6", report["sentence"])

    def test_few_steps_are_decided_by_their_parts(self):
        """The first step of a GPU's recording is cut at its begin and shorter than the others: of three or five steps
        the length decides nothing, but the input in each of them does."""
        def job(name, **values):
            (PLACE / "few.run").write_text(FEW)
            sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
            if not (PLACE / name).exists():
                done = jobs.run([jobs.BUILD / "make_run", "few.run", name, "--kineto", "nccl=seq", *sets], cwd=PLACE)
                self.assertEqual(done.returncode, 0, done.stderr)
            return PLACE / name
        for steps in (3, 5):
            base, new = job(f"base{steps}", steps=steps), job(f"new{steps}", steps=steps, I="6us", seed=2)
            code, report = compare(base, new)
            self.assertEqual((code, report["verdict"]), (0, "better"), report)
            self.assertIn("input takes 5", report["remarks"][0])
            less = re.match(rf"A step is ([\d.]+) ms faster: 1\d\d ms became 1\d\d ms \(.*, from {steps} steps and {steps}\.$", report["sentence"])
            self.assertIsNotNone(less, report["sentence"])
            self.assertAlmostEqual(float(less.group(1)), 56, delta=2)
            # The other way around it is a regression.
            code, report = compare(new, base)
            self.assertEqual((code, report["verdict"], report["regression"]), (4, "worse", True), report)
            # What did not change, and what changed by less than few steps can show, stays open.
            for other in (job(f"again{steps}", steps=steps, seed=3), job(f"little{steps}", steps=steps, seed=3, I="60ms")):
                code, report = compare(base, other)
                self.assertEqual((code, report["verdict"]), (0, "cannot tell"), report["sentence"])
        # Two steps show no spread.
        self.assertEqual(compare(job("base2", steps=2), job("new2", steps=2, I="6us", seed=2))[1]["verdict"], "cannot tell")

    def test_names(self):
        """Kernels and operators of imported traces, kernels and ranges of recorded runs: what came, went and changed is
        listed, of one step, few and many, and another run of the same says nothing."""
        def job(name, steps, seed, kineto, **values):
            (PLACE / "names.run").write_text(NAMES)
            sets = [word for key, value in {"steps": steps, "seed": seed, **values}.items() for word in ("--set", f"{key}={value}")]
            if not (PLACE / name).exists():
                done = jobs.run([jobs.BUILD / "make_run", "names.run", name, *(["--kineto", "nccl=seq"] if kineto else []), *sets], cwd=PLACE)
                self.assertEqual(done.returncode, 0, done.stderr)
            return PLACE / name
        for kineto in (False, True):
            for steps in (1, 3, 5, 30):
                which = f"{'kineto' if kineto else 'recorded'}{steps}"
                base, again = job(f"names_{which}", steps, 1, kineto), job(f"again_{which}", steps, 2, kineto)
                changed = job(f"changed_{which}", steps, 3, kineto, ADAM="fused_adam", NORM=9, SOFTMAX="900us", SPAN="validate")
                rows = compare(base, again)[1]["names"]
                self.assertEqual([row for row in rows if row["verdict"] not in ("same", "cannot tell")], [], which)
                self.assertIn("kernel", {row["kind"] for row in rows})
                self.assertIn("operator" if kineto else "range", {row["kind"] for row in rows})
                report = compare(base, changed)[1]
                said = {(row["kind"], row["name"]): row for row in report["names"] if row["verdict"] not in ("same", "cannot tell")}
                verdicts = {name: row["verdict"] for (kind, name), row in said.items() if kind == "kernel"}
                expected = {"adam": "gone", "fused_adam": "new", "norm": "more often", "softmax": "slower"}
                if steps == 1:
                    del expected["softmax"]  # A single step does not tell how much a time varies by itself.
                self.assertEqual(verdicts, expected, which)
                norm = said["kernel", "norm"]
                self.assertEqual((norm["base"]["per_step"], norm["new"]["per_step"], norm["change_per_step"]), (4, 9, 5))
                self.assertAlmostEqual(norm["base"]["ns_per_step"], 4 * 150e3, delta=60e3)
                ranges = {name: row["verdict"] for (kind, name), row in said.items() if kind == "range"}
                self.assertEqual(ranges, {"check": "gone", "validate": "new"}, which)
                text = diff(base, changed).stdout.decode()
                self.assertRegex(text, r"(?m)^  kernel norm +4 +9 .* more often$")
                self.assertRegex(text, r"(?m)^  kernel adam +2 +- +\S+ \S+ +- +-  gone$")
                self.assertTrue(all(len(line) <= 100 for line in text.splitlines()), text)
                markdown = diff(base, changed, "--markdown", "-").stdout.decode()
                self.assertIn("| kernel norm | 4 | 9 |", markdown)
                # Through a baseline the same.
                self.assertEqual(diff(base, "--save-baseline", f"{which}.json").returncode, 0)
                through = compare(f"{which}.json", changed)[1]
                self.assertEqual([(row["name"], row["verdict"]) for row in through["names"]],
                                 [(row["name"], row["verdict"]) for row in report["names"]])

    def test_incomplete_run(self):
        code, report = compare(run("a"), run("died", 8, "died rank=1 step=35 signal=9"))
        self.assertEqual(code, 3)
        self.assertTrue(report["incomplete"])
        self.assertTrue(any("rank 1" in remark for remark in report["remarks"]), report["remarks"])

    def test_baseline(self):
        slow = run("slow", 3, "slow rank=2 factor=1.1")
        done = diff(run("a"), "--save-baseline", "base.json")
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stderr)
        self.assertLess(os.path.getsize(PLACE / "base.json"), 20000)
        _, direct = compare(run("a"), slow)
        code, through = compare("base.json", slow)
        self.assertEqual(code, 4)
        self.assertEqual([m["verdict"] for m in through["measures"]], [m["verdict"] for m in direct["measures"]])
        self.assertEqual([c["sentence"] for c in through["causes"]], [c["sentence"] for c in direct["causes"]])
        self.assertNotIn("node0", (PLACE / "base.json").read_text())

    def test_same_answer_for_any_number_of_threads(self):
        slow = run("slow", 3, "slow rank=2 factor=1.1")
        self.assertEqual(diff(run("a"), slow, "--json", "-", "-j", "1").stdout,
                         diff(run("a"), slow, "--json", "-", "-j", "3").stdout)

    def test_an_analysis_stands_for_its_run(self):
        self.assertEqual(jobs.run([jobs.LOCKSTEP, "analyze", "-q", run("a")], cwd=PLACE).returncode, 0)
        self.assertEqual(compare(run("a") / "analysis.json", run("b", 2))[1]["verdict"], "same")

    def test_usage(self):
        for arguments in (["nowhere", run("a")], [run("a"), "nowhere"], [run("a"), run("b", 2), "--fail-on", "speed:+3%"],
                          [run("a"), run("b", 2), "--json", "-", "--markdown", "-"],
                          [run("a"), run("b", 2), "--json", "/proc/nowhere/x"]):
            done = diff(*arguments)
            self.assertIn(done.returncode, (1, 2), arguments)
            self.assertEqual(done.stderr.count(b"\n"), 3, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
