"""The module `lockstep`, with and without `lockstep run`: module_test.py BUILD_DIR"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py

BUILD = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
JOB = str(HERE / "module_job.py")
LOCKSTEP = str(BUILD / "lockstep")
MODULE = str(BUILD / "python")
PYTHON = sys.executable
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "PYTHONPATH", "LD_PRELOAD", "RANK"))}

sys.path.insert(0, MODULE)
import lockstep  # noqa: E402


# After https://pytorch.org/tutorials/recipes/recipes/profiler_recipe.html
RECIPE = """
from lockstep import (profile, record_function, schedule, ProfilerActivity, supported_activities,
                      tensorboard_trace_handler)
model = lambda inputs: sum(inputs)
activities = [ProfilerActivity.CPU] + [a for a in (ProfilerActivity.CUDA, ProfilerActivity.XPU) if a in supported_activities()]
with profile(activities=activities, record_shapes=True, profile_memory=True, with_stack=True, with_flops=True,
             with_modules=True, acc_events=True, experimental_config=None, post_processing_timeout_s=3.0) as prof:
    with record_function("model_inference"):
        model(range(5))
    prof.add_metadata("a", "1")
print(prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=10))
print(prof.key_averages(group_by_stack_n=5).table(sort_by="self_cpu_time_total", row_limit=2))
assert list(prof.events()) == [] and prof.key_averages().total_average() == []
prof.export_chrome_trace("trace.json")
prof.export_stacks("stacks.txt", "self_cuda_time_total")
prof.export_memory_timeline("memory.html", device="cuda:0")

def trace_handler(p):
    p.key_averages().table(sort_by="self_cpu_time_total", row_limit=10)
    print("ready", p.step_num)
    p.export_chrome_trace("trace_" + str(p.step_num) + ".json")
    tensorboard_trace_handler("log", use_gzip=True)(p)

with profile(activities=[ProfilerActivity.CPU], schedule=schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2),
             on_trace_ready=trace_handler) as p:
    for idx in range(12):
        model(range(5))
        p.step()
"""


def run(words, cwd, expected=0, **variables):
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=dict(CLEAN, **variables), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == expected, done.stdout + done.stderr
    return done


class Recorded(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def record(self, case, *options, python=(PYTHON,)):
        out = os.path.join(self.dir.name, case)
        done = run([LOCKSTEP, "run", "--quiet", "--after", "none", "-o", out, *options, "--", *python, JOB, case],
                   self.dir.name)
        return lockstep.load(out), done

    def test_decorators(self):
        """Each kind of function: how often it was waited for, and from when to when."""
        run, _ = self.record("decorators")
        ranges = run.rank(0)["ranges"]
        at = {name: sorted(zip(rows.begin_ns.tolist(), (rows.begin_ns + rows.duration_ns).tolist()))
              for name, rows in ranges.groupby("name", observed=True)}
        self.assertEqual({name: len(each) for name, each in at.items()},
                         {"plain": 1, "items": 3 + 2, "consumer": 1, "awaited": 2, "async items": 3 + 1, "shared": 4})
        # Two fetches of 10 ms, the end; another fetch, and what was thrown. What the consumer does meanwhile is not in it.
        items, ((consumer_begin, consumer_end),) = at["items"], at["consumer"]
        for fetch in (0, 1, 3):
            self.assertGreaterEqual(items[fetch][1] - items[fetch][0], 10e6)
        self.assertLessEqual(items[0][1], consumer_begin)
        self.assertGreaterEqual(items[1][0], consumer_end)
        # An await lasts until it is over; tasks and threads do not end each other's ranges.
        self.assertGreaterEqual(at["awaited"][0][1] - at["awaited"][0][0], 290e6)
        for (outer_begin, outer_end), (inner_begin, inner_end) in (at["awaited"], at["shared"][:2], at["shared"][2:]):
            self.assertTrue(outer_begin <= inner_begin <= inner_end <= outer_end, at)
        self.assertEqual(set(ranges[ranges.name == "items"].category), {"input"})

    def test_schedule(self):
        """Of ten steps, those that the schedule says; at each window's end the program is told, with recording off."""
        run, done = self.record("windows")
        self.assertEqual(done.stdout, "done [(5, False), (10, False)]\n")
        steps = run.rank(0)["steps"]
        self.assertEqual(steps[steps.complete]["index"].tolist(), [3, 4, 8, 9])
        names = [name for name in run.rank(0)["ranges"].name if name.startswith("work")]
        self.assertEqual(names, ["work 3", "work 4", "work 8", "work 9"])
        # Off from the start: only what the program asks for.
        run, done = self.record("adjacent", "--start", "off")
        self.assertEqual(done.stdout, "done [(4, False), (7, False)]\n")
        steps = run.rank(0)["steps"]
        self.assertEqual(steps[steps.complete]["index"].tolist(), [1, 2, 3, 4, 5, 6])
        self.assertEqual(len(run.rank(0)["windows"]), 2)

    def test_without_schedule(self):
        """Everything is recorded; the first step() begins the first step that counts, the last one ends the last."""
        run, done = self.record("whole")
        self.assertEqual(done.stdout, "done [(10, False)]\n")
        steps = run.rank(0)["steps"]
        self.assertEqual(steps[steps.complete]["index"].tolist(), list(range(9)))

    def test_command_line_wins(self):
        run, done = self.record("windows", "--steps", "6:8")
        self.assertEqual(done.stdout, "done [(8, False)]\n")
        self.assertIn("the window that `lockstep run` was given counts", done.stderr)
        steps = run.rank(0)["steps"]
        self.assertEqual(steps[steps.complete]["index"].tolist(), [6, 7])

    def test_the_profilers_own_recipe(self):
        """What PyTorch's recipe does with its profiler, with the import changed: the same with and without Lockstep."""
        script = os.path.join(self.dir.name, "recipe.py")
        with open(script, "w") as file:
            file.write(RECIPE)
        out = os.path.join(self.dir.name, "recipe")
        traced = run([LOCKSTEP, "run", "--quiet", "--after", "none", "-o", out, "--", PYTHON, script], self.dir.name)
        plain = run([PYTHON, script], self.dir.name, PYTHONPATH=MODULE)
        self.assertEqual(plain.stdout.count("--table ops"), 2)
        self.assertEqual([line for line in traced.stdout.splitlines() if line.startswith("ready")], ["ready 5", "ready 9"])
        self.assertEqual(sorted(os.listdir(self.dir.name)), ["recipe", "recipe.py"])
        tables = lockstep.load(out).rank(0)
        steps = tables["steps"]
        self.assertEqual(steps[steps.complete]["index"].tolist(), [3, 4, 7, 8])
        names = tables["ranges"].name.value_counts()
        self.assertEqual((names["model_inference"], names["a: 1"]), (1, 1))

    def test_isolated_python(self):
        """-I looks at no PYTHONPATH: a module that is installed reaches the probe all the same."""
        code = "import sys; sys.path.insert(0, %r); sys.argv[1] = 'steps'; exec(open(%r).read())" % (MODULE, JOB)
        out = os.path.join(self.dir.name, "isolated")
        run([LOCKSTEP, "run", "--quiet", "--after", "none", "-o", out, "--", PYTHON, "-I", "-c", code, "steps"],
            self.dir.name)
        self.assertEqual(lockstep.load(out).rank(0)["steps"].complete.sum(), 3)

    def test_load(self):
        """Names for codes and texts, cluster time for moments: the values are those of the file."""
        run, _ = self.record("steps")
        tables = run.rank(0)
        with h5py.File(tables.path) as file:
            self.assertEqual(tables["ranges"].begin_ns.tolist(), file["ranges/begin_ns"][:].tolist())  # One rank, one clock.
            self.assertEqual([{"none": 0, "input": 1, "forward": 2}[c] for c in tables["ranges"].category],
                             file["ranges/category"][:].tolist())
        frame = tables["ranges"]
        self.assertEqual(frame.groupby("name", observed=True).size().to_dict(), {"forward": 3, "load": 9, "a moment": 3})
        self.assertEqual(set(frame[frame.name == "a moment"].kind), {"mark"})
        self.assertEqual(set(frame.source), {"lockstep.h"})
        self.assertEqual(tables["steps"].complete.tolist(), [True] * 3)
        self.assertEqual(run.ranks, [0])
        self.assertEqual(len(run.events("ranges")), len(frame))
        self.assertEqual(run.events("ranges")["rank"].unique().tolist(), [0])
        self.assertEqual(run["ranks"].state.tolist(), ["complete"])
        self.assertEqual(len(tables["no such table"]), 0)
        with self.assertRaises(KeyError):
            run["no such table"]
        with self.assertRaises(KeyError):
            run.rank(7)
        with self.assertRaises(FileNotFoundError):
            lockstep.load(self.dir.name)

    def test_clock_of_two_ranks(self):
        """Clocks that are apart and drift: rank time becomes cluster time as merge itself has it, in both kinds of files."""
        spec = HERE.parent / "golden/cases/clock_offset_drift/run.trace"
        out = os.path.join(self.dir.name, "drift")
        run_made = subprocess.run([BUILD / "make_run", spec, out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(run_made.returncode, 0, run_made.stdout)
        loaded = lockstep.load(out)
        of_timeline = loaded["step_ranks"]
        for rank in loaded.ranks:
            own = loaded.rank(rank)["steps"]
            mine = of_timeline[of_timeline["rank"] == rank]
            both = own.merge(mine, on="index", suffixes=("", "_timeline"))
            self.assertGreater(len(both), 3)
            self.assertLessEqual((both.end_ns - both.cluster_end_ns).abs().max(), 1)
            self.assertLessEqual((both.end_ns_timeline - both.cluster_end_ns).abs().max(), 1)
        offsets = loaded["clock"].groupby("rank").offset_ns.first()
        self.assertGreater(offsets.max() - offsets.min(), 1_000_000)

    def test_a_run_that_lacks_a_rank(self):
        """What there is can be read; of the missing rank there is nothing."""
        out = os.path.join(self.dir.name, "lacking")
        run([BUILD / "make_run", HERE.parent / "golden/cases/missing_rank/run.trace", out], "/")
        loaded = lockstep.load(out)
        self.assertIn("missing", set(loaded["ranks"].state))
        missing = loaded["ranks"]["rank"][loaded["ranks"].state == "missing"].tolist()
        self.assertFalse(set(missing) & set(loaded.ranks))
        with self.assertRaises(KeyError):
            loaded.rank(missing[0])
        self.assertGreater(len(loaded.events("steps")), 0)

    def test_files_name_their_codes(self):
        """Three lines of h5py and no table of codes: every enumeration's column says its own, also the long ones."""
        run, _ = self.record("steps")
        for path in (run.rank(0).path, run._timeline.path):
            with h5py.File(path) as file:
                for table, group in file.items():
                    for name, column in group.items():
                        if column.attrs["unit"] == "enum":
                            codes = dict(line.split(" ", 1) for line in column.attrs["codes"].split("\n"))
                            self.assertTrue({str(v) for v in column[:].tolist()} <= set(codes), (table, name, codes))


class Bare(unittest.TestCase):
    def python(self, code, *arguments, cwd="/", expected=0, **variables):
        return run([PYTHON, *arguments, "-c", code], cwd, expected, PYTHONPATH=MODULE, **variables)

    def test_nothing_happens(self):
        """Without the runtime nothing is loaded, every call does nothing, and nothing is said but by profile()."""
        self.assertEqual(self.python(
            "import sys; before = set(sys.modules); import lockstep\n"
            "assert not {'ctypes', '_lockstep.probe', 'pandas', 'h5py', 'torch', 'subprocess'} & (set(sys.modules) - before)\n"
            "lockstep.step(); lockstep.step_index(3); lockstep.step_end(); lockstep.mark('x'); lockstep.start(); lockstep.stop()\n"
            "assert lockstep.recording() is False and list(lockstep.ranges('ab', 'x')) == ['a', 'b']\n"
            "from lockstep import *; assert range(3)[2] == 2 and callable(profile)\n"
            "print(lockstep.__version__)").stderr, "")
        done = run([PYTHON, JOB, "decorators"], "/", PYTHONPATH=MODULE)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        done = run([PYTHON, JOB, "windows"], "/", PYTHONPATH=MODULE)
        self.assertEqual(done.stdout, "done []\n")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("lockstep run -- python", done.stderr)
        self.assertEqual(run([PYTHON, JOB, "windows"], "/", PYTHONPATH=MODULE, RANK="1").stderr, "")

    def test_a_broken_runtime_is_no_error(self):
        """A segment that is gone, a preload that is another's, hooks that do not load."""
        with tempfile.TemporaryDirectory() as broken:
            os.mkdir(broken + "/_lockstep")
            with open(broken + "/_lockstep/__init__.py", "w") as file:
                file.write("raise RuntimeError('broken')\n")
            done = run([PYTHON, JOB, "steps"], "/", PYTHONPATH=broken + ":" + MODULE, LOCKSTEP_SEGMENT="/none")
            self.assertEqual(done.stderr, "")
        self.assertEqual(run([PYTHON, JOB, "steps"], "/", PYTHONPATH=MODULE, LOCKSTEP_SEGMENT="/none").stderr, "")

    def test_version(self):
        version = run([LOCKSTEP, "--version"], "/").stdout.strip()
        self.assertEqual(self.python("import lockstep; print(lockstep.__version__)").stdout.strip(), version)

    def test_as_a_program(self):
        """python -m lockstep SCRIPT runs it under Lockstep; other words are commands."""
        with tempfile.TemporaryDirectory() as where:
            run([PYTHON, "-m", "lockstep", "--quiet", "--after", "none", "-o", "out", JOB, "steps"], where, PYTHONPATH=MODULE)
            self.assertEqual(lockstep.load(where + "/out").rank(0)["steps"].complete.sum(), 3)
            done = run([PYTHON, "-m", "lockstep", "analyze", "--json", "-", "out"], where, PYTHONPATH=MODULE)
            self.assertEqual(json.loads(done.stdout)["schema"], "lockstep.analysis/1")

    def test_schedule_is_torchs(self):
        """The same action for every step as torch.profiler.schedule has."""
        try:
            import torch.profiler as theirs
        except ImportError:
            self.skipTest("no torch")
        for wait, warmup, active, repeat, skip in ((1, 1, 2, 2, 3), (0, 0, 1, 0, 0), (2, 0, 3, 1, 0), (0, 2, 1, 3, 1)):
            a = lockstep.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
            b = theirs.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
            self.assertEqual([a(i).name for i in range(30)], [b(i).name for i in range(30)])
        for wrong in ({"active": 0}, {"wait": -1}):
            with self.assertRaises(ValueError):
                lockstep.schedule(**dict(dict(wait=0, warmup=0, active=1), **wrong))


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False).result
    sys.exit(not result.wasSuccessful())
