#!/usr/bin/env python3
"""tests/soak/run on a project of scripted tests.

usage: run_test.py
"""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run"
LISTS = r"""
cmake_minimum_required(VERSION 3.22)
project(fake NONE)
enable_testing()
function(scripted group name script)
  add_test(NAME ${name} COMMAND bash -c "${script}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS "soak;soak.${group}")
endfunction()
foreach(group strict lenient pool)
  # Every third time wrong.
  add_test(NAME ${group}.third COMMAND bash -c "n=$(cat $0 2>/dev/null || echo 0); echo $((n + 1)) > $0; [ $((n % 3)) != 2 ] || { echo third; exit 1; }"
           ${CMAKE_CURRENT_BINARY_DIR}/${group})
  set_tests_properties(${group}.third PROPERTIES LABELS "soak;soak.${group}")
  scripted(${group} ${group}.always "true")
endforeach()
scripted(facts facts.seed "echo seed $LOCKSTEP_TEST_SEED; [ -n \"$LOCKSTEP_TEST_SEED\" ]")
scripted(facts facts.skips "echo skipped: no such thing; exit 77")
# Foreign faults: now and then, and always.
add_test(NAME foreign.now COMMAND bash -c "[ -e $0 ] || { touch $0; echo 'crash of XYZ 1.2'; exit 139; }" ${CMAKE_CURRENT_BINARY_DIR}/foreign)
scripted(always always.crashes "echo 'crash of XYZ 1.2'; exit 139")
set_tests_properties(foreign.now PROPERTIES LABELS "soak;soak.foreign")
add_test(NAME absent.program COMMAND /nonexistent/program)
set_tests_properties(absent.program PROPERTIES LABELS "soak;soak.absent")
scripted(slow slow.quick "true")
scripted(slow slow.waits "echo > waiting; [ -e go ] || sleep 60")
"""
CRASH = """
[[group.exceptions]]
name = "XYZ crashes"
pattern = 'crash of XYZ'
reason = "XYZ 1.2 does that alone, too"
most = 0.5
"""
GROUPS = """
[[group]]
name = "strict"
shows = "what is wrong every third time"
minutes = 1
paths = ["a/strict.cc"]
needs = ["root", "torch2"]
runs = 3
[[group]]
name = "lenient"
shows = "the same"
paths = ["a", "CMakeLists.txt"]
needs = ["root"]
runs = 6
rate = 0.6
[[group]]
name = "pool"
shows = "the same, judged with another one"
paths = ["a"]
[[group.tests]]
pattern = '^pool\\.'
runs = 3
rate = 0.8
together = true
[[group]]
name = "facts"
shows = "a seed, and what is skipped"
paths = ["a"]
runs = 2
jobs = 2
[[group.commands]]
name = "table"
run = 'echo "| ${BUILD##*/} |"; echo much >&2'
[[group]]
name = "foreign"
shows = "a foreign fault"
paths = ["a"]
runs = 3
""" + CRASH + """
[[group]]
name = "always"
shows = "a foreign fault that is none"
paths = ["a"]
""" + CRASH + """
[[group]]
name = "absent"
shows = "a program that was not built"
paths = ["a"]
[[group]]
name = "slow"
shows = "an interruption"
paths = ["a"]
[[group]]
name = "page"
shows = "tables"
by_name = true
page = "docs/page.md"
paths = ["a"]
[[group.commands]]
name = "first"
run = "echo figure 1; echo noise >&2"
[[group.commands]]
name = "second"
run = "echo figure 2; exit 1"
"""


class Soak(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.held.cleanup)
        cls.source = pathlib.Path(cls.held.name).resolve()
        (cls.source / "tests/soak").mkdir(parents=True)
        (cls.source / "a").mkdir()
        (cls.source / "CMakeLists.txt").write_text(LISTS)
        (cls.source / "tests/soak/groups.toml").write_text(GROUPS)
        (cls.source / "a/strict.cc").write_text("1\n")
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
            subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=cls.source, check=True)

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.build = pathlib.Path(held.name) / "build"
        subprocess.run(["cmake", "-S", self.source, "-B", self.build], check=True, stdout=subprocess.DEVNULL)

    def words(self, *words):
        return ["/usr/bin/python3", RUN, *words, "--source", self.source]

    def soak(self, *words, code=0):
        done = subprocess.run(self.words(*words), capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def json(self, group):
        return json.loads((self.build / f"soak/{group}.json").read_text())

    def row(self, printed, group):
        return next(line.split() for line in printed.splitlines() if line.split()[:1] == [group] and line.split()[2:3] == ["of"])

    def test_rates(self):
        printed = self.soak(self.build, "strict", "lenient", "pool", code=1)
        self.assertEqual(self.row(printed, "strict")[1:6] + self.row(printed, "strict")[-1:], ["5", "of", "6", "100", "%", "failed"])
        self.assertEqual(self.row(printed, "lenient")[1:6] + self.row(printed, "lenient")[-1:], ["10", "of", "12", "60", "%", "passed"])
        self.assertEqual(self.row(printed, "pool")[1:4] + self.row(printed, "pool")[-1:], ["5", "of", "6", "passed"])
        self.assertIn("failed  strict.third: 2 right, 1 wrong; wanted 100 % of 3", printed)
        self.assertEqual(printed.splitlines()[-1], "4 passed, 1 failed, 0 skipped")
        self.assertEqual((self.build / "soak/strict/strict.third.3.log").read_text().strip(), "third")
        found = self.json("strict")
        self.assertEqual([run["result"] for run in found["tests"]["strict.third"]["runs"]], ["right", "right", "wrong"])
        self.assertEqual(found["judgements"], {"strict.third": "failed", "strict.always": "passed"})
        self.assertEqual((found["cores"], len(found["calls"][0]["load"])), (os.cpu_count(), 2))

    def test_facts_skips_and_commands(self):
        printed = self.soak(self.build, "facts")
        self.assertEqual(self.row(printed, "facts")[1:4] + self.row(printed, "facts")[6:7], ["3", "of", "3", "1"])
        self.assertIn("skipped  facts.skips: skipped: no such thing", printed)
        self.assertEqual(printed.splitlines()[-1], "2 passed, 0 failed, 1 skipped")
        tests = self.json("facts")["tests"]
        self.assertEqual({name: len(test["runs"]) for name, test in tests.items()}, {"facts.seed": 2, "facts.skips": 1, "facts.table": 1})
        self.assertNotEqual(*(run["seed"] for run in tests["facts.seed"]["runs"]))
        self.assertEqual((self.build / "soak/facts/facts.table.1.log").read_text(), "| build |\n")

    def test_exceptions(self):
        printed = self.soak(self.build, "foreign", "always", code=1)
        self.assertEqual(self.row(printed, "foreign")[1:4] + self.row(printed, "foreign")[-3:-2], ["3", "of", "3", "1"])
        self.assertIn("exception  foreign.now: XYZ crashes, in 1 of 4 runs", printed)
        self.assertEqual(self.row(printed, "always")[-1], "failed")
        self.assertEqual(printed.splitlines()[-1], "1 passed, 1 failed, 0 skipped")
        self.assertIn("Unable to find executable", self.soak(self.build, "absent", code=1))

    def test_pages(self):
        self.soak(self.build, "page", code=1)
        self.assertEqual((self.build / "soak/page.md").read_text().count("figure"), 4)
        self.assertNotIn("\nnoise", (self.build / "soak/page.md").read_text())

    def test_an_interruption_and_what_comes_after_it(self):
        waiting = self.build / "waiting"
        os.mkfifo(waiting)
        process = subprocess.Popen(self.words(self.build, "slow", "foreign"), stdout=subprocess.PIPE, text=True)
        waiting.read_text()
        waiting.unlink()
        process.send_signal(signal.SIGTERM)
        printed = process.communicate()[0]
        self.assertEqual((process.returncode, self.row(printed, "slow")[-1]), (130, "unfinished"), printed)
        self.assertIn("unfinished  slow.waits", printed)
        (self.build / "go").touch()
        printed = self.soak(self.build, "slow", "--resume")
        self.assertEqual(printed.splitlines()[-1], "2 passed, 0 failed, 0 skipped")
        self.assertEqual((printed.count("slow.quick"), len(self.json("slow")["calls"])), (0, 2))
        self.assertIn("slow.quick", self.soak(self.build, "slow"))
        self.assertIn("unfinished", self.soak(self.build, "slow", "--minutes", "0"))

    def test_lists_needs_changes_and_labels(self):
        self.assertRegex(self.soak("--list"), r"(?m)^strict +1 +3 +100 % +root torch2 +what is wrong every third time$")
        self.assertIn("tables (by name only)", self.soak(self.build, "--list"))
        self.assertEqual(self.soak("--needs", "strict", "lenient", "--runs", "2"), "root\ntorch2\n")
        self.soak(self.build, "nobody", code=1)
        changed = self.source / "CMakeLists.txt"
        try:
            changed.write_text(LISTS + "\n")
            self.assertEqual(self.soak("--needs", "--changed", "HEAD"), "root\n")
            self.assertNotIn("strict", self.soak("--list", "--changed", "HEAD"))
        finally:
            changed.write_text(LISTS)
        self.assertEqual(self.soak(self.build, "--check"), "9 groups, 8 of them with tests in this build\n")
        (self.build / "CTestTestfile.cmake").write_text('set_tests_properties(x PROPERTIES LABELS "soak;soak.slow;soak.unheard")')
        wrong = self.soak(self.build, "--check", code=1)
        self.assertIn("unheard: a label of tests, and no group of groups.toml", wrong)
        self.assertIn("strict: has neither tests nor commands", wrong)


if __name__ == "__main__":
    unittest.main()
