#!/usr/bin/env python3
"""Stacks taken from outside: the right functions and lines, in C++ and in every Python that is here; and programs that do not
notice it: threads in all kinds of waits, threads and programs that come and go, and one that is traced already.

usage: stacks_test.py BUILD_DIR [unittest arguments]
"""
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TAKE, TARGETS, STORM, FILTERED = (jobs.BUILD / f"tests/stacks_{name}" for name in ("take_stacks", "targets", "storm", "filtered"))
PYTHONS = {"3.11 of the system": "/usr/bin/python3"}
for home in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*"))):
    PYTHONS[pathlib.Path(home).name] = home + "/bin/python3"
COVERED = re.compile(r"3\.(8|9|1[0-4])\b")


def marks(source):
    return {name: number for number, line in enumerate((HERE / source).read_text().splitlines(), 1)
            for name in re.findall(r"mark: (\w+)", line)}


class Stacks(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-stacks-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def take(self, *program, samples=3, pause_us=2000, which="all", settle_ms=200, kill=True, under=()):
        """What take_stacks says; and what the program printed after its first line."""
        out = self.place / "out.json"
        environment = dict(os.environ, STACKS_OUT=str(out), **({"STACKS_KILL": "1"} if kill else {}))
        done = subprocess.run([*map(str, under), str(TAKE), str(samples), str(pause_us), which, str(settle_ms), "--", *map(str, program)],
                              env=environment, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
        return json.loads(out.read_text()), done.stdout

    def stack(self, taken, main=True):
        """Innermost first: [(function, file, line)] of the last sample's main thread, or of the last thread."""
        threads = taken["samples"][-1]["threads"]
        thread = [each for each in threads if each["main"]][0] if main else threads[-1]
        return [(frame["function"], frame["file"], frame["line"]) for frame in reversed(thread["frames"])]

    def assert_order(self, stack, *wanted):
        places = [stack.index(frame) if frame in stack else -1 for frame in wanted]
        self.assertNotIn(-1, places, (wanted, stack))
        self.assertEqual(places, sorted(places), stack)

    # C++ -------------------------------------------------------------------------------------------------------------

    def native(self, mode, main=True):
        return self.stack(self.take_native(mode), main)

    def take_native(self, mode):
        if not (jobs.BUILD / "lockstep-stacks").exists():
            self.skipTest("no lockstep-stacks: built without libdw")
        return self.take(TARGETS, mode, 60)[0]

    def test_a_blocked_read(self):
        self.assert_order(self.native("read"), ("lockstep_demo::ReadPipe", "targets.cc", marks("targets.cc")["read"]))

    def test_a_held_lock(self):
        taken = self.take_native("lock")
        stack = self.stack(taken, main=False)
        self.assert_order(stack, ("lockstep_demo::TakeLock", "targets.cc", marks("targets.cc")["lock"]))
        threads = taken["samples"][-1]["threads"]
        self.assertEqual([(each["waits_for"], each["held_by"]) for each in threads if each["waits_for"]], [("a lock", threads[0]["thread"])])
        self.assertTrue(threads[0]["main"])

    def test_an_endless_loop(self):
        names = [function for function, _, _ in self.native("loop")]
        self.assertIn("lockstep_demo::Spin", names)

    def test_nested_calls_without_frame_pointers(self):
        names = [function for function, _, _ in self.native("nested")]
        self.assertEqual(names.count("lockstep_demo::Nested"), 21, names)
        self.assertEqual(names[-1], "main")

    def test_a_template(self):
        self.assertIn("lockstep_demo::Generic<double>", [function for function, _, _ in self.native("generic")])

    def find_no_names(self):
        os.environ["LOCKSTEP_STACKS_PROGRAM"] = "/nowhere/lockstep-stacks"
        self.addCleanup(os.environ.pop, "LOCKSTEP_STACKS_PROGRAM")

    def test_without_the_program_that_finds_names(self):
        self.find_no_names()
        taken, _ = self.take(sys.executable, HERE / "python_target.py", "sleep")
        self.assertEqual(self.stack(taken)[0][0], "collate")
        self.assertIn("native functions are not known", taken["samples"][-1]["threads"][0]["missing"])

    # Python ----------------------------------------------------------------------------------------------------------

    def covered_pythons(self):
        for name, python in PYTHONS.items():
            if not os.access(python, os.X_OK):
                continue
            said = subprocess.run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], stdout=subprocess.PIPE, text=True).stdout
            if COVERED.match(said):
                yield name, python

    def test_who_has_the_gil(self):
        at, tried = marks("python_target.py"), 0
        self.find_no_names()  # Those of Python are enough, and take no time.
        for name, python in self.covered_pythons():
            with self.subTest(python=name):
                has_ctypes = subprocess.run([python, "-c", "import ctypes"], stderr=subprocess.DEVNULL).returncode == 0
                if not has_ctypes:
                    continue
                tried += 1
                # It wakes now and then, and is not seen waiting then.
                taken = self.take(python, HERE / "python_target.py", "gil", samples=5)[0]["samples"]
                threads = next((sample["threads"] for sample in taken if sample["threads"][0]["waits_for"]), taken[-1]["threads"])
                main, = [each for each in threads if each["main"]]
                self.assertEqual(main["waits_for"], "Python's GIL", main)
                holder, = [each for each in threads if each["thread"] == main["held_by"]]
                self.assertIn(("hold", at["hold"]), [(frame["function"].split(".")[-1], frame["line"]) for frame in holder["frames"]])
                self.assertEqual(holder["waits_for"], "")
        # Of the main thread alone, samples tell who has it.
        taken, _ = self.take(PYTHONS["3.11 of the system"], HERE / "python_target.py", "gil", which="main", samples=20)
        innermost = {(frame["function"].split(".")[-1], frame["file"], frame["line"])
                     for sample in taken["samples"] for frame in sample["threads"][0]["frames"][-1:]}
        self.assertIn(("[waits for Python's GIL, held in hold]", "python_target.py", at["hold"]), innermost)
        self.assertGreater(tried, 0)

    def test_nobody_has_a_lock_of_which_that_is_not_known(self):
        self.find_no_names()
        for name, python in self.covered_pythons():
            with self.subTest(python=name):
                threads = self.take(python, HERE / "python_target.py", "thread")[0]["samples"][-1]["threads"]
                self.assertEqual([each["held_by"] for each in threads], [0] * len(threads))

    def test_python(self):
        at = marks("python_target.py")
        wanted = {"sleep": [("collate", "collate"), ("fetch", "fetch")], "generator": [("generator", "generator"), ("consume", "consume")],
                  "callback": [("callback", "callback"), ("__lt__", "lt"), ("main", "sorted")], "unicode": [("作業", "unicode")],
                  "spin": [("spin", "spin")], "thread": [("join", None), ("main", "join")],
                  "deep": [("deep", "deep_end")]}
        tried = 0
        for name, python in self.covered_pythons():
            tried += 1
            for mode, frames in wanted.items():
                with self.subTest(python=name, mode=mode):
                    stack = self.stack(self.take(python, HERE / "python_target.py", mode)[0])
                    ours = [(function.split(".")[-1], line) for function, _, line in stack]
                    for function, mark in frames:
                        if mark is None:
                            self.assertIn(function, [each for each, _ in ours])
                        elif mode == "spin":  # Between two of its lines.
                            self.assertTrue(any(f == function and abs(line - at[mark]) <= 1 for f, line in ours), ours)
                        else:
                            self.assertIn((function, at[mark]), ours)
        print(f"{tried} interpreters")
        self.assertGreater(tried, 0)

    def test_a_thread_of_python(self):
        taken, _ = self.take(sys.executable, HERE / "python_target.py", "thread")
        self.assertIn(("locked", marks("python_target.py")["locked"]),
                      [(function, line) for function, _, line in self.stack(taken, main=False)])

    # Not noticed -----------------------------------------------------------------------------------------------------

    def test_a_storm(self):
        """1,000 samples of all threads, in all kinds of waits."""
        taken, output = self.take(STORM, 6, samples=1000, pause_us=4000, settle_ms=50, kill=False)
        self.assertEqual(taken["exit_code"], 42)
        self.assertGreater(taken["taken"], 100)
        rows = [line.split("\t") for line in output.splitlines()]
        calls = {row[1]: [int(each) for each in row[2:]] for row in rows if row[0] == "call"}
        self.assertEqual(len(calls), 15, output)
        for name, (count, interrupted, early) in calls.items():
            self.assertGreater(count, 0, name)
            self.assertEqual(interrupted, 0, name)
            self.assertLessEqual(early, 1, name)  # What its end has woken.
        self.assertIn(["child", "5"], rows)
        ticks, seconds = next(row[1:] for row in rows if row[0] == "ticks")
        self.assertLessEqual(int(ticks), float(seconds) * 100 + 2)
        print(f"stops: median {taken['stop_median_ns'] / 1000:.0f} us, longest {taken['stop_max_ns'] / 1000:.0f} us, "
              f"{taken['mended']} calls begun again")

    def test_a_stop_is_no_longer_than_what_the_thread_missed(self):
        """On one core whoever is let go runs at once, and the agent has to wait: that is not a stop of the thread."""
        core = str(min(os.sched_getaffinity(0)))
        os.environ["LOCKSTEP_STACKS_PROGRAM"] = "/nonexistent"  # It would want the core too.
        self.addCleanup(os.environ.pop, "LOCKSTEP_STACKS_PROGRAM")
        taken, output = self.take(TARGETS, "missed", 4, samples=100, pause_us=20000, which="main", kill=False,
                                  under=("taskset", "-c", core))
        missed_ns, longest_ns = map(int, next(line.split("\t")[1:] for line in output.splitlines() if line.startswith("missed")))
        self.assertGreater(taken["stops"], 50)
        self.assertLessEqual(taken["stop_max_ns"], longest_ns)
        self.assertLessEqual(taken["stop_sum_ns"], missed_ns)

    def storm_job(self, *lockstep, under=()):
        """A job of two ranks whose main threads make all kinds of calls: what is not as it should be, and what was said."""
        job = jobs.BUILD / "tests/stacks_storm_job"
        if not job.exists() or not shutil.which("mpirun"):
            self.skipTest("skipped: no MPI")
        said = pathlib.Path(tempfile.mkdtemp(dir=self.place))
        done = jobs.run([*jobs.MPIRUN, "-np", 2, *lockstep, *under, job, 2, said], str(self.place))
        rows = [line.split("\t") for path in said.iterdir() for line in path.read_text().splitlines()]
        calls = [(row[1], *map(int, row[2:])) for row in rows if row[0] == "call"]
        self.assertEqual((len(calls), rows.count(["child", "5"])), (30, 2), (rows, done.stderr.decode()))
        self.assertTrue(all(count > 0 for name, count, _, _ in calls), calls)
        interrupted = [row for row in calls if row[2]]
        early = [row for row in calls if row[3] > 0]
        for row in rows:
            if row[0] == "ticks":
                self.assertLessEqual(int(row[1]), float(row[2]) * 100 + 2)
        return (done.returncode, interrupted, early), done.stderr.decode()

    def samples_of(self, rank):
        stack = jobs.RankFile(self.place / f"out/ranks/rank-{rank:05}.h5").column("samples", "stack")
        return int((stack != 0xffffffff).sum())

    def test_a_storm_of_a_job_that_is_sampled(self):
        sampled = [jobs.LOCKSTEP, "run", "--after", "none", "-o", "out", "--stacks", "all:50,calls", "--"]
        bare, _ = self.storm_job()
        self.assertEqual(bare, (0, [], []))
        self.assertEqual(self.storm_job(*sampled)[0], bare)
        for rank in range(2):
            self.assertGreater(self.samples_of(rank), 20)

    @unittest.skipUnless(shutil.which("strace") or shutil.which("gdb"), "no strace, no gdb")
    def test_a_job_under_a_debugger_is_left_alone(self):
        strace = ["strace", "-f", "-e", "trace=none", "-o", "/dev/null"]
        gdb = ["gdb", "-q", "-nx", "-batch", "-return-child-result", "-ex", "handle SIGALRM nostop noprint pass", "-ex", "run", "--args"]
        for tracer in (strace, gdb):
            if not shutil.which(tracer[0]):
                continue
            for directory in self.place.glob("out"):
                shutil.rmtree(directory)
            bare, _ = self.storm_job(under=tracer)
            traced, said = self.storm_job(jobs.LOCKSTEP, "run", "--after", "none", "-o", "out", "--stacks", "all:50", "--", under=tracer)
            # What the debugger itself does to the calls is not ours.
            self.assertEqual(traced[0], bare[0], said)
            self.assertLessEqual({row[0] for row in traced[1]}, {row[0] for row in bare[1]}, tracer)
            for rank in range(2):
                self.assertEqual(self.samples_of(rank), 0)
                self.assertEqual(len(re.findall(rf"rank {rank}: no samples of its stack: .* process \d+ traces it", said)), 1, said)

    def test_threads_that_come_and_go(self):
        taken, _ = self.take(TARGETS, "exits", 4, samples=500, pause_us=1000, settle_ms=0, kill=False)
        self.assertEqual(taken["exit_code"], 9)

    def test_threads_that_execute_a_program(self):
        # Who executes waits for every traced thread to be waited for: this hung one time in five once.
        for _ in range(15):
            taken, output = self.take(TARGETS, "execs", 60, 100, samples=300, pause_us=500, settle_ms=0, kill=False)
            self.assertEqual((taken["exit_code"], output.count("ready")), (11, 101))

    # Refused ---------------------------------------------------------------------------------------------------------

    def test_a_filter_that_refuses_reads(self):
        for which, names in (("process_vm_readv", "process_vm_readv"), ("both", "process_vm_readv and ptrace")):
            taken, _ = self.take(TARGETS, "read", 60, under=[FILTERED, which, "--"])
            self.assertEqual(taken["taken"], 0)
            self.assertRegex(taken["why"], rf"\(seccomp\) forbids {names}: .*--cap-add SYS_PTRACE")

    def test_a_filter_that_refuses_ptrace_leaves_what_can_be_read(self):
        taken, _ = self.take(sys.executable, HERE / "python_target.py", "sleep", under=[FILTERED, "ptrace", "--"])
        self.assertEqual(taken["taken"], 3)
        self.assertIn("forbids ptrace: ", taken["why"])
        self.assertIn(("collate", marks("python_target.py")["collate"]), [(function, line) for function, _, line in self.stack(taken)])

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root, to become a user without rights")
    def test_a_user_without_rights(self):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
        if subprocess.run([*nobody, str(TAKE)], stderr=subprocess.DEVNULL).returncode != 2:
            self.skipTest("the build is not readable by others")
        self.place.chmod(0o777)
        # A parent may look at its own program.
        taken, _ = self.take(TARGETS, "read", 60, under=nobody)
        self.assertEqual((taken["taken"], taken["why"]), (3, ""))
        # Not at one that has closed itself.
        (self.place / "out.json").unlink()
        taken, _ = self.take(TARGETS, "closed", 60, under=nobody)
        self.assertEqual(taken["taken"], 0)
        self.assertIn("closed to processes of its own user (prctl PR_SET_DUMPABLE", taken["why"])
        self.assertIn("run lockstep with the capability SYS_PTRACE", taken["why"])

    @unittest.skipUnless(shutil.which("strace"), "no strace")
    def test_a_traced_program_is_left_alone(self):
        taken, _ = self.take("strace", "-D", "-o", "/dev/null", TARGETS, "read", 60)
        self.assertEqual(taken["taken"], 0)
        self.assertRegex(taken["why"], r"process \d+ traces it \(a debugger, strace\)")


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result)
