"""Flags as environment variables: whatever they hold, the program runs as it would without them.

usage: variables_test.py BUILD_DIR [unittest arguments]
The variables are those that `lockstep run --help` names: a new flag is tested, or this test says what it lacks.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
import mpi_sessions  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[3]
LOCKSTEP = str(BUILD / "lockstep")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_", "SLURM_"))} | mpi_sessions.ENVIRONMENT
MPIRUN = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe"]
PROGRAM = ["sh", "-c", 'echo out "$LOCKSTEP_STEPS"; echo err >&2; exit 7']
RANK = [*PROGRAM[:2], PROGRAM[2].replace("7", "0")]  # mpirun ends all once one has failed.
# What a flag takes, where help's choices and types do not say it. None: of other variables only.
GOOD = {"STEPS": "0:2", "SCHEDULE": "wait=1,active=2", "STEP_RANGE": "step", "RANGE": "train", "RANGE_COUNT": None,
        "DELAY": "0.1", "DURATION": "1", "ON_SIGNAL": "USR1", "SIGNAL_STEPS": None, "ALIGN": None, "START": "off",
        "RANKS": "0", "OUTPUT": "good-output", "SPOOL_DIR": ".", "AFTER_TO": "good-after", "METRICS": "good-metrics",
        "AFTER_WAIT": "3", "MAX_BYTES": "1GB", "RING_SIZE": "1MB", "RING_TOTAL": "4MB", "GPU_BUFFERS": "64MB",
        "LIVE": "5", "TRIGGER": "1", "ESTIMATE": "1", "TORCH_OPS": "1", "TORCH_SHAPES": "1", "QUIET": "1", "GPU_MEMORY": "true",
        "NCCL_KERNEL_CHANNELS": "on", "HANG_AFTER": "60", "ON_HANG": "report", "NO_SEND": "1", "STACKS": "off"}
# Names and paths: anything is one.
ANYTHING = ("STEP_RANGE", "RANGE", "OUTPUT", "METRICS", "AFTER_TO")
# Another command's, another tool's, another time's.
FOREIGN = ("110:310", "0-3,8", "tcp", "report.html", "1e308", "10:30/20")
BAD = ("@!", "\x1b[31mred", "9" * 400)


class Variables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-variables-"))
        help_ = subprocess.run([LOCKSTEP, "run", "--help"], capture_output=True, text=True, env=CLEAN).stdout
        # Flag, its type, its variable.
        cls.help = {name: kind for kind, name in re.findall(r"^ +(.*?) ?\(Env:(LOCKSTEP_\w+)\)", help_, re.M)}
        cls.names = sorted(cls.help)
        (cls.dir / "places").mkdir()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir, ignore_errors=True)

    def good(self, name):
        flag = name.removeprefix("LOCKSTEP_")
        if flag in GOOD:
            return GOOD[flag]
        choices = re.search(r"\{([^}]*)\}", self.help[name])
        self.assertTrue(choices, f"{name}: add a value that it takes to GOOD")
        return choices[1].split(",")[0]

    def run_(self, words=(), program=PROGRAM, launcher=(), inside=(), **variables):
        # A place of its own: what one run leaves is a path that another's variable names.
        place = self.dir / "places" / str(len(os.listdir(self.dir / "places")))
        place.mkdir()
        done = subprocess.run([*launcher, LOCKSTEP, "run", *words, "--", *inside, *program], cwd=place,
                              env={**CLEAN, **variables}, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        done.place = place
        done.ours = [line for line in done.stderr.splitlines() if line.startswith("lockstep: ")]
        done.ignored = [line for line in done.ours if "is ignored" in line]
        return done

    def ran(self, done, steps=""):
        self.assertEqual((done.returncode, done.stdout), (7, f"out {steps}\n"), done.stderr)
        self.assertIn("err\n", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        self.assertFalse([line for line in done.stderr.splitlines() if len(line) > 1000], done.stderr)

    def test_help_names_them(self):
        self.assertGreater(len(self.names), 30, self.names)
        for name in ("LOCKSTEP_CLOCK", "LOCKSTEP_RANKS", "LOCKSTEP_STEPS", "LOCKSTEP_OUTPUT"):
            self.assertIn(name, self.names)
        # Set for a whole session it would keep every program from running; hidden flags are no business of users.
        for name in ("LOCKSTEP_PRINT_ENV", "LOCKSTEP_EVERY_SLOT", "LOCKSTEP_NO_VARIABLES"):
            self.assertNotIn(name, self.names)
            self.ran(self.run_(**{name: "1"}))

    def test_good(self):
        for name in self.names:
            value = self.good(name)
            if value is None:
                continue
            with self.subTest(name=name):
                done = self.run_(**{name: value})
                self.ran(done, value if name == "LOCKSTEP_STEPS" else "")
                self.assertEqual(done.ignored, [])
                self.assertEqual((done.place / "good-output" / "ranks").is_dir(), name == "LOCKSTEP_OUTPUT")

    def test_bad(self):
        for name in self.names:
            for value in BAD:
                with self.subTest(name=name, value=value[:20]):
                    done = self.run_(**{name: value})
                    self.assertEqual((done.returncode, done.stdout),
                                     (7, "out %s\n" % (value if name == "LOCKSTEP_STEPS" else "")), done.stderr)
                    self.assertNotIn("\x1b", "".join(done.ignored))
                    # A flag without a value of its own is on for any number.
                    if name.removeprefix("LOCKSTEP_") in ANYTHING or (" " not in self.help[name] and value.isdigit()):
                        continue
                    self.assertEqual(len(done.ignored), 1, done.stderr)
                    shown = value.replace("\x1b", "?")[:100]
                    self.assertTrue(done.ignored[0].startswith(f"lockstep: {name}={shown}"), done.ignored)
                    self.assertRegex(done.ignored[0], r"is ignored: \S")

    def test_foreign(self):
        for name in self.names:
            for value in FOREIGN:
                with self.subTest(name=name, value=value):
                    done = self.run_(**{name: value})
                    self.ran(done, value if name == "LOCKSTEP_STEPS" else "")
                    self.assertLessEqual(len(done.ignored), 1)
                    for line in done.ignored:
                        self.assertIn(f"{name}={value} is ignored: ", line)

    def test_empty_is_not_set(self):
        done = self.run_(**dict.fromkeys(self.names, ""))
        self.ran(done)
        self.assertEqual(done.ignored, [])
        self.assertEqual(len(done.ours), len(self.run_().ours), done.ours)

    def test_all_at_once(self):
        names = [name for name in self.names if name.removeprefix("LOCKSTEP_") not in ANYTHING]
        bad = dict.fromkeys(names, "@!")
        done = self.run_(**bad)
        self.ran(done, "@!")
        self.assertEqual(sorted(line.split()[1].split("=")[0] for line in done.ignored), names)
        # Ranks of a job, in either form, say it once.
        for form in ({"launcher": (*MPIRUN, "-np", "2")}, {"inside": (*MPIRUN, "-np", "2")}):
            done = self.run_(program=RANK, **form, **{**bad, "LOCKSTEP_QUIET": ""})
            self.assertEqual((done.returncode, done.stdout), (0, "out @!\nout @!\n"), done.stderr)
            # Paths are those of the machines where the ranks run.
            left_out = {"LOCKSTEP_QUIET"} | ({"LOCKSTEP_SPOOL_DIR"} if "inside" in form else set())
            self.assertEqual(sorted(line.split()[1].split("=")[0] for line in done.ignored),
                             [name for name in names if name not in left_out])

    def test_variables_that_contradict(self):
        done = self.run_(LOCKSTEP_STEPS="1:3", LOCKSTEP_SCHEDULE="wait=1,active=2")
        self.ran(done, "1:3")
        self.assertEqual(len(done.ignored), 1)
        # One that needs another, whichever is looked at first.
        done = self.run_(LOCKSTEP_RANGE="train", LOCKSTEP_RANGE_COUNT="2")
        self.ran(done)
        self.assertEqual(done.ignored, [])

    def test_flags_come_first(self):
        out = self.dir / "by-flag"
        done = self.run_(["-o", str(out), "--clock", "off"], LOCKSTEP_OUTPUT="by-variable", LOCKSTEP_CLOCK="@!")
        self.ran(done)
        self.assertEqual(done.ignored, [])
        self.assertTrue(out.is_dir())
        self.assertFalse((done.place / "by-variable").exists())
        done = self.run_(["--clock", "@!"])
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        done = self.run_(["--steps", "30:10"], LOCKSTEP_CLOCK="off")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_they_are_used(self):
        for form in ({}, {"launcher": (*MPIRUN, "-np", "2")}, {"inside": (*MPIRUN, "-np", "2")}):
            out = self.dir / ("used-%d" % len(os.listdir(self.dir)))
            self.run_(program=RANK, **form, LOCKSTEP_OUTPUT=str(out), LOCKSTEP_STEPS="3:5", LOCKSTEP_AFTER="none")
            self.assertIn('"3:5"', (out / "manifest.json").read_text())

    def test_other_commands_have_their_own(self):
        marker = BUILD / "tests/e2e_marker"
        if not marker.exists():
            self.skipTest("e2e_marker is not built")
        of_run = {name: self.good(name) or "1" for name in self.names}
        set_ = {**of_run, "LOCKSTEP_OUTPUT": str(self.dir), "LOCKSTEP_RANKS": "0-1", "LOCKSTEP_CLOCK": "tcp",
                "LOCKSTEP_STEPS": "10:30/20", "LOCKSTEP_JSON": "nowhere", "LOCKSTEP_JOBS": "many"}
        run = self.dir / "run"
        # And what `run` starts at the end has none of them either.
        done = self.run_(["-o", str(run)], [str(marker), str(self.dir / "count"), "50"], LOCKSTEP_CLOCK="tcp",
                         LOCKSTEP_RANKS="0", LOCKSTEP_MAX_BYTES="1GB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("did not succeed", done.stderr)
        self.assertIn("analysis.json", done.stderr)

        def said(*words, **variables):
            done = subprocess.run([LOCKSTEP, *map(str, words)], cwd=self.dir, env={**CLEAN, **variables},
                                  capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout, done.stderr

        hinted = {"analyze": ("JSON", "JOBS"), "export": ("JOBS",), "info": ("JSON",), "merge": ("JSON", "JOBS"),
                  "diff": ("JSON", "JOBS")}  # `report -q` has --jobs, and says nothing.
        for words in (("analyze", run, "--json", "-"), ("report", run, "-q"), ("export", run, "--format", "csv"),
                      ("info", run), ("merge", run), ("diff", run, "--save-baseline", "-"), ("man",)):
            code, out, err = said(*words, **set_)
            # A flag's name that no command knows, where the command has the flag.
            hints = [line for line in err.splitlines(True) if " is not a variable of any command; " in line]
            command = words[0].upper()
            self.assertEqual(hints, [f"lockstep: LOCKSTEP_{flag} is not a variable of any command; "
                                     f"LOCKSTEP_{command}_{flag} is\n"
                                     for flag in hinted.get(words[0], ())], words)
            err = "".join(line for line in err.splitlines(True) if line not in hints)
            self.assertEqual((code, out, err), said(*words), words)
        code, _, err = said("analyze", run, LOCKSTEP_ANALYZE_JSON="by-variable.json", LOCKSTEP_ANALYZE_JOBS="many")
        self.assertIn(code, (0, 3))
        self.assertTrue((self.dir / "by-variable.json").exists())
        self.assertEqual(err.count("is ignored"), 1)
        self.assertIn("LOCKSTEP_ANALYZE_JOBS=many is ignored: ", err)

    def test_names_are_nobody_elses(self):
        page = subprocess.run([LOCKSTEP, "man"], capture_output=True, text=True, env=CLEAN).stdout.replace("\\-", "-")
        named = re.findall(r"\(\\fI(LOCKSTEP_\w+)\\fR\)", page)
        self.assertEqual(len(named), len(set(named)), sorted(n for n in named if named.count(n) > 1))
        self.assertLessEqual(set(self.names), set(named))
        internal = set(re.findall(r'"(LOCKSTEP_\w+)"', (SOURCE / "core/env.h").read_text()))
        self.assertGreater(len(internal), 7)
        self.assertEqual(internal & set(named), set())

    def test_misspelt(self):
        done = self.run_(LOCKSTEP_STEP="10:30", LOCKSTEP_OUTPT="x", LOCKSTEP_HOME="/opt/lockstep", LOCKSTEP_X="1",
                         LOCKSTEP_LIBRARY_DIR=str(BUILD), LOCKSTEP_ANALYZE_STEPS="1:2")
        self.ran(done)
        self.assertEqual(sorted(line for line in done.ours if " is not a variable of " in line),
                         ["lockstep: LOCKSTEP_OUTPT is not a variable of lockstep run; LOCKSTEP_OUTPUT is",
                          "lockstep: LOCKSTEP_STEP is not a variable of lockstep run; LOCKSTEP_STEPS is"])


if __name__ == "__main__":
    unittest.main()
