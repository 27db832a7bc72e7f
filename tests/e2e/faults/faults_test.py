#!/usr/bin/env python3
"""The fault matrix: each case runs a program without and with Lockstep, disturbs
both in the same way, and compares what the world sees - standard output, exit
code, files, and standard error but for Lockstep's own lines. Then the trace has
to say what happened, and what is missing from it.

usage: faults_test.py BUILD_DIR GROUP [CASE...]
"""

import dataclasses
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs  # noqa: E402


@dataclasses.dataclass
class Case:
    """One row of the matrix. In words, {tmp} is the job's directory, {tests} that of
    the built programs, {source} that of this file."""
    name: str
    program: typing.Sequence[str]
    ranks: int = 0                       # 0: without mpirun.
    options: typing.Sequence[str] = ()   # Of `lockstep run`.
    env: typing.Mapping[str, str] = dataclasses.field(default_factory=dict)
    shell: str = ""                      # Wrapped around the command: sh -c, the command is "$@".
    shell_with_it: str = ""              # The same, under Lockstep only.
    prepare: typing.Callable = None      # (job): before the start.
    disturb: typing.Callable = None      # (job): while it runs. Else it just runs.
    input: bytes = b""
    code: int = None                     # Exit code; None: whatever the bare program's is.
    files: typing.Sequence[str] = ()     # In {tmp}, compared byte by byte.
    compare_stderr: bool = True
    stdout: typing.Callable = None       # (bytes) -> what is compared.
    recorded: bool = True                # A run directory must be there.
    analyze: int = None                  # Exit code of `lockstep analyze`, None: not asked.
    check: typing.Callable = None        # (test, job): what the trace must say.
    needs_root: bool = False
    extra_seconds: float = 5             # What Lockstep may add to the wall time (seconds_test.py).


class Job:
    """One run of a case's program."""

    def __init__(self, case, directory, traced):
        self.case, self.traced = case, traced
        self.directory = pathlib.Path(directory)
        self.code = self.stdout = self.stderr = None
        self.output = self.directory / "lockstep.out"
        places = {"tmp": str(self.directory), "tests": str(jobs.BUILD / "tests"),
                  "source": str(pathlib.Path(__file__).resolve().parent)}

        def fill(word):
            for name, value in places.items():
                word = word.replace("{%s}" % name, value)
            return word

        if case.prepare:
            case.prepare(self)
        program = [fill(word) for word in case.program]
        if traced:
            program = [jobs.LOCKSTEP, "run", "--after", "none", *map(fill, case.options), "--", *program]
        if case.ranks:
            program = [*jobs.MPIRUN, "-np", str(case.ranks), *program]
        shell = case.shell_with_it if traced and case.shell_with_it else case.shell
        self.words = ["bash", "-c", fill(shell), "bash", *program] if shell else program
        self.env = dict(jobs.ENVIRONMENT, TMPDIR=str(self.directory / "tmp"),
                        **{name: fill(value) for name, value in case.env.items()})
        (self.directory / "tmp").mkdir(exist_ok=True)

    def run(self):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pipe = subprocess.PIPE if self.case.disturb or self.case.input else subprocess.DEVNULL
            self.process = subprocess.Popen(self.words, cwd=self.directory, env=self.env, stdin=pipe, stdout=out,
                                            stderr=err, start_new_session=False)
            self.out = out
            try:
                if self.case.disturb:
                    self.case.disturb(self)
                self.process.communicate(self.case.input, timeout=120)
            finally:
                if self.process.poll() is None:
                    self.process.kill()
                    self.process.wait()
            self.code = self.process.returncode
            out.seek(0)
            err.seek(0)
            self.stdout, self.stderr = out.read(), err.read()
        return self

    def wait_for(self, text):
        """Until the program has printed `text`."""
        said = lambda: text in os.pread(self.out.fileno(), 1 << 16, 0)  # noqa: E731
        jobs.wait_until(lambda: said() or self.process.poll() is not None)
        if not said():
            raise AssertionError("the program never said %r" % text)

    @property
    def app(self):
        """Process id of the program itself."""
        if not self.traced:
            return self.process.pid
        return jobs.program_of(self.process)

    @property
    def trace(self):
        places = [jobs.newest(self.output), self.directory / "run", self.directory / "full/run"]
        return jobs.Run(next((place for place in places if place.is_dir()), places[0]))


class Matrix(unittest.TestCase):
    longMessage = True
    maxDiff = 4000

    def run_case(self, case):
        if case.needs_root and os.geteuid() != 0:
            self.skipTest("needs root")
        with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as directory:
            done = []
            shared = jobs.segments()
            for traced in (False, True):
                # The same path for both: it shows in outputs.
                place = pathlib.Path(directory) / "job"
                place.mkdir()
                done.append(Job(case, place, traced).run())
                if not traced:
                    kept = {name: self.content(place / name) for name in case.files}
                    self.unmount(place)
                    shutil.rmtree(place)
            bare, traced = done
            try:
                self.compare(case, bare, traced, kept)
                self.look_at_trace(case, traced)
            except AssertionError:
                sys.stderr.write("%s: words %r\n-- stderr:\n%s\n-- stderr, bare:\n%s\n" % (
                    case.name, traced.words, traced.stderr.decode(errors="replace")[-3000:], bare.stderr.decode(errors="replace")[-3000:]))
                raise
            finally:
                self.unmount(place)
            # Of agents that other tests killed those tests remove them.
            left = lambda: [path for path in jobs.segments() - shared if not self.in_use(path)]  # noqa: E731
            self.assertTrue(jobs.wait_until(lambda: not left(), 60), "left in /dev/shm: %r" % left())

    @staticmethod
    def in_use(path):
        """Of another test's agent, which is alive: the file's name ends in its process id."""
        return os.path.exists("/proc/" + path.rsplit("-", 1)[1])

    @staticmethod
    def unmount(place):
        if os.path.ismount(place / "full"):
            subprocess.run(["umount", str(place / "full")], check=False)

    @staticmethod
    def content(path):
        return path.read_bytes() if path.exists() else None

    def compare(self, case, bare, traced, kept):
        self.assertEqual(traced.code, bare.code, "exit code")
        if case.code is not None:
            self.assertEqual(bare.code, case.code, "exit code of the bare program: %s" % bare.stderr)
        view = case.stdout or (lambda text: text)
        self.assertEqual(view(traced.stdout), view(bare.stdout), "standard output")
        if case.compare_stderr:
            self.assertEqual(jobs.without_ours(traced.stderr), bare.stderr, "standard error")
        for name, content in kept.items():
            self.assertEqual(self.content(traced.directory / name), content, name)

    def look_at_trace(self, case, traced):
        if case.recorded:
            self.assertTrue(traced.trace.directory.is_dir(), "no run directory: %s" % traced.stderr)
        if case.analyze is not None:
            code, traced.analysis, said = traced.trace.analyze()
            self.assertEqual(code, case.analyze, said)
        if case.check:
            case.check(self, traced)


class Terminal(Matrix):
    """A terminal sends ^C to the whole foreground group: program and agent both get it."""

    def interrupted(self, directory, words):
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(directory)
            os.execve(words[0], words, jobs.ENVIRONMENT)
        seen, sent = b"", False
        while True:
            try:
                text = os.read(terminal, 4096)
            except OSError:  # EIO: nobody has the other side open any more.
                break
            if not text:
                break
            seen += text
            if b"ready" in seen and not sent:
                sent = os.write(terminal, b"\x03") == 1
        _, status = os.waitpid(child, 0)
        os.close(terminal)
        return seen, os.waitstatus_to_exitcode(status)

    def both(self, *program):
        program = [str(jobs.BUILD / "tests/faults_app"), *program]
        with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as directory:
            bare = self.interrupted(directory, program)
            traced = self.interrupted(directory, [jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "--", *program])
            self.assertEqual(traced, bare)
            code, _, said = jobs.latest(directory).analyze()
            self.assertIn(code, (0, 3), said)
        return bare

    def test_default(self):
        self.assertEqual(self.both("wait")[1], -signal.SIGINT)

    def test_handled_once(self):
        seen, code = self.both("handler", str(int(signal.SIGINT)))
        self.assertEqual((seen.count(b"handled"), code), (1, 5))


def add_cases(module, groups):
    for name, cases in groups.items():
        methods = {}
        for case in cases:
            methods["test_" + case.name] = (lambda case: lambda self: self.run_case(case))(case)
        module[name] = type(name, (Matrix,), methods)


if __name__ == "__main__":
    import matrix
    add_cases(globals(), matrix.groups(Case))
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
