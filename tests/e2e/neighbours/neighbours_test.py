"""Several commands on one run, or on the same traces, at once: neighbours_test.py BUILD_DIR [-v] CASE

Every one of them says what it would say alone, and nothing is left behind. LOCKSTEP_TEST_PAIRS: how many pairs, of each kind.
"""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "import")]
import jobs  # noqa: E402
import traces  # noqa: E402

MAKE_RUN = jobs.BUILD / "make_run"
NO_LOCKS = jobs.BUILD / "tests/test_no_locks.so"
PAIRS = int(os.environ.get("LOCKSTEP_TEST_PAIRS", "4"))
SPEC = """ranks 4
nodes 2
steps 40
warmup 2
seed 7
jitter 1%
network alpha=20us bandwidth=4GB/s
late rank=2 by=1ms
step
  input 300us
  forward 1ms
  backward 3ms buckets=1MiB,1MiB
  waitall
  optimizer 300us
end
"""
NOBODY = 65534


def start(*words, env=None, **more):
    return subprocess.Popen([jobs.LOCKSTEP, *map(str, words)], cwd="/", env=dict(jobs.ENVIRONMENT, **(env or {})),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-neighbours-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def run_(self):
        """A recorded run that nobody has looked at."""
        original = self.dir / "original-run"
        if not original.exists():
            (self.dir / "spec.run").write_text(SPEC)
            subprocess.run([MAKE_RUN, self.dir / "spec.run", original], check=True, capture_output=True, timeout=60)
        return self.fresh(original, "run")

    def traces(self):
        original = self.dir / "original-traces"
        if not original.exists():
            for rank, trace in enumerate(traces.job(4, steps=range(10, 25))):
                traces.write(trace, original / f"rank_{rank}.json")
        return self.fresh(original, "traces")

    def fresh(self, original, name):
        self.counter = getattr(self, "counter", 0) + 1
        # One name: it may show in what is said.
        place = self.dir / str(self.counter) / name
        shutil.copytree(original, place)
        return place

    def kinds(self):
        return (self.run_, self.traces)

    def said(self, process, codes=(0, 3)):
        out, err = process.communicate(timeout=300)  # Closes its pipes.
        self.assertIn(process.returncode, codes, out + err)
        return out, err

    def alone(self, make, *words):
        """What a command says that has its directory for itself; words: the directory stands for None."""
        key = (make.__name__, words)
        known = self.__dict__.setdefault("known", {})
        if key not in known:
            place = make()
            known[key] = self.said(start(*[place if word is None else word for word in words]))[0].replace(str(place), "DIR")
            shutil.rmtree(place)
        return known[key]

    def clean(self, place):
        """Results, and nothing else."""
        left = [path for path in place.rglob("*")
                if ".part" in path.name or path.name.endswith(".lock")]
        self.assertEqual(left, [])
        if (place / ".lockstep").exists():
            self.assertEqual(len(list((place / ".lockstep").iterdir())), 1, list((place / ".lockstep").iterdir()))


ANALYZE = ("analyze", None, "--json", "-")


class Pairs(Case):
    def together(self, make, count, env=None):
        place = make()
        processes = [start("analyze", place, "--json", "-", env=env) for _ in range(count)]
        for process in processes:
            out, err = self.said(process)
            self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, *ANALYZE), err)
        self.clean(place)
        # And what they left is what the next one finds.
        out, err = self.said(start("analyze", place, "--json", "-"))
        self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, *ANALYZE), err)
        shutil.rmtree(place)

    def test_two(self):
        for make in self.kinds():
            for i in range(PAIRS):
                with self.subTest(make.__name__, pair=i):
                    self.together(make, 2)

    def test_four(self):
        for make in self.kinds():
            for i in range(max(1, PAIRS // 5)):
                with self.subTest(make.__name__, four=i):
                    self.together(make, 4)

    def test_no_locks(self):
        """Where nothing can be locked each works for itself."""
        for make in self.kinds():
            for i in range(max(1, PAIRS // 5)):
                place = make()
                processes = [start("analyze", place, "--json", "-", env={"LD_PRELOAD": str(NO_LOCKS)}) for _ in range(3)]
                told = []
                for process in processes:
                    out, err = self.said(process)
                    self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, *ANALYZE), err)
                    told.append("no locks" in err)
                self.assertIn(True, told)  # Who came when all was done needed none.
                # The next one with locks removes what one was killed over, and finds the results.
                out, _ = self.said(start("analyze", place, "--json", "-"))
                self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, *ANALYZE))
                self.clean(place)


class Beside(Case):
    """Different commands that all want the same first."""

    def test_commands(self):
        for make in self.kinds():
            place = make()
            words = {"analyze": ["--json", "-"], "report": ["-o", "-"], "info": ["--json", "-"],
                     "whatif": ["--json", "-", "-q"], "export": ["--format", "chrome", "-o", str(self.dir / "out.json")],
                     "merge": ["--json", "-"], "diff": ["--save-baseline", "-"]}
            begun = {name: start(name, place, *more) for name, more in words.items()}
            narrowed = start("analyze", place, "--json", "-", "--steps", "12:20")
            for name, process in begun.items():
                with self.subTest(make.__name__, command=name):
                    self.said(process)
            self.said(narrowed)
            for name in ("analyze", "whatif"):
                out, err = self.said(start(name, place, *words[name]))
                self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, name, None, *words[name]), err)
            self.clean(place)

    def test_findings_of_other_steps_are_not_exported(self):
        """analysis.json may be of whoever was last; an export tells what its own timeline says."""
        place = self.run_()

        def exported():
            self.said(start("export", place, "--format", "chrome", "-o", self.dir / "out.json", "-q"))
            return (self.dir / "out.json").read_text()

        self.said(start("analyze", place))
        first = exported()
        kept = (place / "analysis.json").read_text()
        self.said(start("analyze", place, "--steps", "5:8"))
        other = json.loads((place / "analysis.json").read_text())
        self.said(start("merge", place))
        # As if it had come a little later.
        changed = json.dumps(dict(other, findings=[dict(f, headline="somebody else's") for f in other["findings"]] or
                                  [{"id": "x", "headline": "somebody else's", "evidence": "", "action": ""}]))
        (place / "analysis.json").write_text(changed)
        later = (place / "timeline.h5").stat().st_mtime + 5
        os.utime(place / "analysis.json", (later, later))
        self.assertNotIn("somebody else's", exported())
        (place / "analysis.json").write_text(kept)
        self.assertEqual(exported(), first)


class Locks(Case):
    def test_import_killed_between_its_last_renames(self):
        """What is there then is no run, and the same command makes one; ranks without a manifest may be a recording."""
        source, run = self.traces(), self.dir / "run"
        words = ("import", "kineto", source, "-o", run)
        self.said(start(*words))
        expected = self.said(start("analyze", run, "--json", "-"))[0]
        whole = self.said(start(*words), codes=(2,))[1]
        self.assertIn("exists already", whole)
        (run / "manifest.json").unlink()
        sorted((run / "ranks").glob("rank-*"))[-1].unlink()
        self.assertIn("exists already", self.said(start(*words), codes=(2,))[1])
        (run / ".import-moving").mkdir()
        self.said(start(*words))
        self.assertEqual(self.said(start("analyze", run, "--json", "-"))[0], expected)
        self.assertFalse((run / ".import-moving").exists())
        self.clean(run)

    def test_a_holder_that_hangs_is_named_and_not_waited_for(self):
        place = self.run_()
        with open(place / ".lockstep.lock", "w") as held:
            held.write("lockstep\x1b[31m, process 17 on elsewhere\n")
            held.flush()
            fcntl.flock(held, fcntl.LOCK_EX)
            out, err = self.said(start("analyze", place, "--json", "-", env={"LOCKSTEP_TEST_LOCK_WAIT_MS": "1500"}))
        self.assertEqual(out.replace(str(place), "DIR"), self.alone(self.run_, *ANALYZE))
        self.assertIn("waiting for lockstep?[31m, process 17 on elsewhere", err)
        self.assertIn("makes no progress", err)

    def test_what_is_there_needs_no_lock(self):
        place = self.run_()
        self.said(start("analyze", place))
        with open(place / ".lockstep.lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            _, err = self.said(start("analyze", place, "--json", "-"))
        self.assertEqual(err, "")

    def test_a_lock_is_no_way_to_other_files(self):
        place = self.run_()
        (self.dir / "precious").write_text("precious")
        (place / ".lockstep.lock").symlink_to(self.dir / "precious")
        self.said(start("analyze", place))
        self.assertEqual((self.dir / "precious").read_text(), "precious")
        os.unlink(place / ".lockstep.lock")
        os.mkfifo(place / ".lockstep.lock")
        os.unlink(place / "timeline.h5")
        self.said(start("analyze", place))

    def test_old_imports_go_when_nobody_reads_them(self):
        place = self.traces()
        self.said(start("analyze", place))
        cache = place / ".lockstep"
        (first,) = cache.iterdir()
        with open(first / ".in-use") as reader:
            fcntl.flock(reader, fcntl.LOCK_SH)
            os.utime(place / "rank_0.json", (1, 1))
            self.said(start("analyze", place))
            self.assertEqual(len(list(cache.iterdir())), 2)
            self.assertTrue((first / "manifest.json").exists())
        os.utime(place / "rank_0.json", (2, 2))
        self.said(start("analyze", place))
        (last,) = cache.iterdir()
        self.assertNotEqual(last, first)
        # Files and directories of others are nobody's leftovers.
        (cache / "import-notes").mkdir()
        (cache / ".notes.0123456789abcdef.part-mine").write_text("")
        os.utime(place / "rank_0.json", (3, 3))
        self.said(start("analyze", place))
        self.assertEqual(len(list(cache.iterdir())), 3)

    def test_devices_stay_devices(self):
        place = self.run_()
        device = self.dir / "null"
        try:
            os.mknod(device, 0o600 | 0o020000, os.makedev(1, 3))
        except PermissionError:
            self.skipTest("may not make a device")
        self.said(start("analyze", place, "--json", device))
        self.said(start("export", place, "--format", "chrome", "-o", device, "-q"))
        self.assertTrue(device.is_char_device())
        shown = start("analyze", place, "--json", "/dev/stdout", "-q")
        self.assertIn('"schema"', self.said(shown)[0])


def as_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


class Places(Case):
    """Directories that cannot be written to, files that cannot be read, and every command on traces."""

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)

    def readonly(self, place):
        for path in (place, *place.rglob("*")):
            os.chmod(path, 0o555 if path.is_dir() else 0o444)

        def undo():
            for path in (place, *[p for p in place.rglob("*") if p.is_dir()]):
                os.chmod(path, 0o755)
        self.addCleanup(undo)

    def as_other(self, *words, **env):
        """By somebody who owns nothing here."""
        if os.geteuid() != 0:
            return start(*words, env=env)
        return start(*words, env=dict(env, HOME="/nonexistent"), preexec_fn=as_nobody)

    def test_read_only(self):
        for make in self.kinds():
            expected = self.alone(make, *ANALYZE)
            place = make()
            self.readonly(place)
            cache = self.dir / ("cache-" + make.__name__)
            cache.mkdir()
            os.chmod(cache, 0o777)
            processes = [self.as_other("analyze", place, "--json", "-", XDG_CACHE_HOME=str(cache)) for _ in range(2)]
            for process in processes:
                out, err = self.said(process)
                self.assertEqual(out.replace(str(place), "DIR"), expected, err)
            self.assertFalse((place / ".lockstep").exists())
            self.assertFalse((place / "timeline.h5").exists())

    def test_temporary_directory_of_somebody_else(self):
        """/tmp/lockstep-UID is a name that anybody can make first."""
        if os.geteuid() != 0:
            self.skipTest("needs another user")
        place = self.traces()
        self.readonly(place)
        temporary = self.dir / "tmp"
        temporary.mkdir()
        os.chmod(temporary, 0o1777)
        (temporary / f"lockstep-{NOBODY}").mkdir()
        os.chmod(temporary / f"lockstep-{NOBODY}", 0o777)
        process = self.as_other("analyze", place, TMPDIR=str(temporary))
        _, err = self.said(process, codes=(1,))
        self.assertIn("there is no directory to import into", err)
        os.rmdir(temporary / f"lockstep-{NOBODY}")
        self.said(self.as_other("analyze", place, TMPDIR=str(temporary)))
        self.assertEqual((temporary / f"lockstep-{NOBODY}").stat().st_mode & 0o777, 0o700)

    def test_unreadable_says_why(self):
        place = self.traces()
        (place / "rank_1.json").unlink()
        (place / "rank_1.json").symlink_to("/proc/self/mem")  # EIO, for root as well.
        out, err = self.said(start("analyze", place, "--json", "-"), codes=(3,))
        losses = [loss for loss in json.loads(out)["losses"] if loss["name"] == "FileUnreadable"]
        self.assertEqual(len(losses), 1)
        self.assertIn("Input/output error", losses[0]["detail"])
        for path in place.glob("rank_*"):
            path.unlink()
            path.symlink_to("/proc/self/mem")
        for command in ("analyze", "info", "whatif", "report"):
            _, err = self.said(start(command, place), codes=(1,))
            self.assertIn("Input/output error", err, command)
            self.assertNotIn("no traceEvents", err)
        os.unlink(place / "rank_0.json")
        (place / "rank_0.json").symlink_to("nowhere")
        _, err = self.said(start("analyze", place), codes=(1,))
        self.assertIn("No such file", err)

    def test_forbidden_says_why(self):
        if os.geteuid() != 0:
            self.skipTest("needs another user")
        place = self.traces()
        for path in place.glob("rank_*"):
            os.chmod(path, 0o600)
        temporary = self.dir / "tmp"
        temporary.mkdir()
        os.chmod(temporary, 0o1777)
        _, err = self.said(self.as_other("analyze", place, TMPDIR=str(temporary)), codes=(1,))
        self.assertIn("Permission denied", err)
        self.assertNotIn("no traceEvents", err)
        os.chmod(place, 0o700)
        _, err = self.said(self.as_other("analyze", place, TMPDIR=str(temporary)), codes=(1,))
        self.assertIn("Permission denied", err)

    def test_forbidden_run_says_why(self):
        if os.geteuid() != 0:
            self.skipTest("needs another user")
        run = self.run_()
        for path in (self.dir, run.parent):
            os.chmod(path, 0o755)
        rank = sorted((run / "ranks").glob("*.h5"))[0]
        for closed, mode in ((run, 0o700), (run / "ranks", 0o700), (rank, 0o600)):
            for path in (run, run / "ranks"):
                os.chmod(path, 0o755)
            for path in (run / "ranks").glob("*.h5"):
                os.chmod(path, 0o600 if closed == rank else 0o644)
            os.chmod(closed, mode)
            for words in (["analyze", run], ["info", run], ["report", run, "-o", "-"], ["analyze", rank]):
                with self.subTest(closed=closed.name, words=words):
                    _, err = self.said(self.as_other(*words), codes=(1, 2))
                    self.assertRegex(err.lower(), "permission denied")
                    self.assertNotRegex(err, "torch.profiler|newer|no such|gather")

    def test_every_command_takes_traces(self):
        place = self.traces()
        commands = {"analyze": [], "report": ["-o", "-"], "whatif": [], "info": [], "merge": [], "diff": ["--save-baseline", "-"],
                    "export": ["-o", self.dir / "out.pftrace"], "doctor": None, "recover": []}
        for command, more in commands.items():
            words = ["doctor", "--run", place] if command == "doctor" else [command, place, *more]
            if command == "doctor" and "--run" not in self.said(start("doctor", "--help"))[0]:
                words = ["doctor", place]
            for target in (place, place / "rank_0.json"):
                process = start(*[target if word is place else word for word in words])
                with self.subTest(command=command, target=target.name):
                    if command == "whatif" and target is not place:  # One rank of four says nothing about the others.
                        _, err = self.said(process, codes=(1,))
                        self.assertIn("only rank 0 was recorded", err)
                        continue
                    out, err = self.said(process, codes=(0, 3, 5) if command == "doctor" else (0, 3))
                    self.assertTrue(out)
        server = start("open", place, "--port", 0)
        line = server.stdout.readline()
        server.terminate()
        self.assertIn("timeline.pftrace", line, server.communicate())


class Spools(Case):
    """What killed ranks left is finished once, however many ask for it."""

    def test_two(self):
        marker = jobs.BUILD / "tests/e2e_marker"
        if not marker.exists():
            self.skipTest("e2e_marker is not built")
        original = self.dir / "original"
        done = jobs.run([jobs.LOCKSTEP, "run", "-o", original, "--after", "none", "--", marker,
                         self.dir / "count", "2000", "0", "kill"], cwd=self.dir)
        self.assertEqual(len(list((original / "ranks").glob("*.spool"))), 1, done.stderr)
        seen = set()
        for i in range(max(2, PAIRS // 4)):
            place = self.fresh(original, "run")
            processes = [start("analyze", place, "--json", "-") for _ in range(3)]
            seen |= {self.said(process, codes=(0, 3))[0].replace(str(place), "DIR") for process in processes}
            self.assertEqual([p.name for p in sorted((place / "ranks").glob("rank-*"))], ["rank-00000.h5"])
            self.clean(place)
        self.assertEqual(len(seen), 1)


if __name__ == "__main__":
    for needed in (jobs.LOCKSTEP, MAKE_RUN, NO_LOCKS):
        if not os.path.exists(needed):
            print(f"skipped: {needed} is not built")
            sys.exit(77)
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result)
