"""Names are shown, never obeyed: whatever a trace, a host, a program or a path is called, what any command prints holds no
character that a terminal takes for a command, that turns text around or that ends a line which the command did not end.

usage: names_test.py BUILD_DIR [unittest arguments]

The commands are those that lockstep --help lists, the tables those of analyze --table help, the options those of each
command's --help: new ones are covered by being there.
"""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "import"))
import jobs
import pseudo_terminal
import traces

# Title of the window, clear screen, C1 (as a character), right-to-left, isolate, line ends of all kinds, tab, backspace.
CORE = "\x1b]0;owned\x07\x1b[2J\x1b[31m\u009b1m\u0085\u202e\u2066\u200f\u2028\r\tforged\x7f\x08"
LINE = "\nlockstep: forged\nerror: forged"  # Not in a host's name, which is 64 bytes.
NAME = "né训🚀" + CORE + LINE
LONG = NAME + "x" * 100_000
# In names of files: everything but / and NUL, and bytes that are no UTF-8.
FILE = os.fsencode("f" + CORE + LINE) + b"\xff\x9b2J\xc2"
FORGED = re.compile(r"^\s*(lockstep|error): forged", re.MULTILINE)
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
SGR = re.compile("\x1b\\[[0-9;]*m")
FORMATS = re.findall(r'FORMAT\(\w+, "(\w+)"', (pathlib.Path(__file__).resolve().parents[3] / "export/formats.def").read_text())

def words_of(text, pattern):
    return sorted(set(re.findall(pattern, text, re.MULTILINE)))

class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.here = pathlib.Path(cls.held.name)
        cls.commands = words_of(cls.plain("--help").split("Subcommands:")[1], r"^  ([a-z][a-z-]+) ")
        assert len(cls.commands) >= 14, cls.commands
        cls.tables = words_of(cls.plain("analyze", "--table", "help"), r"^  ([a-z_-]+) ")

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    @staticmethod
    def plain(*words):
        return jobs.run([jobs.LOCKSTEP, *words], "/").stdout.decode()

    def clean(self, data, what, colors=False):
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            self.fail(f"{what}: not UTF-8: {error}; {data[max(0, error.start - 60):error.start + 20]!r}")
        if colors:
            text = SGR.sub("", text).replace("\r\n", "\n")
        found = OBEYED.search(text)
        if found:
            self.fail(f"{what}: {found.group()!r} in {text[max(0, found.start() - 80):found.end() + 20]!r}")
        forged = FORGED.search(text)
        if forged:
            self.fail(f"{what}: a line that was not ours: {text[max(0, forged.start() - 80):forged.end() + 20]!r}")
        return text

    def run_clean(self, *words, codes=(0, 3, 4, 5), cwd="/", env=None, timeout=300):
        done = subprocess.run([w if isinstance(w, bytes) else str(w) for w in (jobs.LOCKSTEP, *words)], cwd=cwd, capture_output=True,
                              env=dict(jobs.ENVIRONMENT, **(env or {})), timeout=timeout, stdin=subprocess.DEVNULL)
        shown = " ".join(repr(w)[:60] for w in words)
        out, err = self.clean(done.stdout, shown + " (output)"), self.clean(done.stderr, shown + " (error)")
        if codes is not None:
            self.assertIn(done.returncode, codes, f"{shown}: {out[-500:]} {err[-500:]}")
        return out, err, done.returncode

    # ---- Hostile runs ----

    def hostile_traces(self):
        """Traces of torch.profiler: operators, kernels, ranges, threads, devices, groups, files and their directory."""
        directory = os.path.join(os.fsencode(self.here), b"traces" + FILE)
        os.makedirs(directory)
        for rank, trace in enumerate(traces.job(ranks=2)):
            trace.facts["deviceProperties"][0]["name"] = NAME
            trace.facts["distributedInfo"]["backend"] = "nccl"
            trace.facts["hostname"] = trace.facts["host_name"] = NAME
            for event in trace.events:
                known = event["name"].startswith(("ProfilerStep", "record_param_comms", "nccl", "cuda", "Memcpy", "[memory]", "Stream"))
                if event["ph"] == "M":
                    event["args"]["name"] = NAME
                elif not known:
                    event["name"] += NAME
                args = event.get("args", {})
                for key in ("Process Group Description", "Process Group Name"):
                    if key in args:
                        args[key] += NAME
            trace.kernel("void " + LONG, 30_500, 300, trace.launch(30_400))
            trace.annotation(LONG, 30_300, 900)
            trace.communication(31_000, 31_100, 200, what="odd" + NAME, name="ncclDevKernel_" + NAME)
            path = os.path.join(directory, b"rank%d" % rank + FILE + b".json")
            with open(path, "wb") as file:
                file.write(json.dumps(trace.document()).encode())
        with open(os.path.join(directory, b"no trace" + FILE + b".json"), "wb") as file:
            file.write(b"{}")
        return directory

    def recorded(self, name, steps, ranks=1, pause_s=0.0, killed=False, environment=None):
        """A real run: host, program, arguments, directory, ranges, communicators; environment that ends up in messages."""
        place = os.path.join(os.fsencode(self.here), name + FILE)
        os.makedirs(place, exist_ok=True)
        program, run = os.path.join(place, b"prog" + FILE + b".py"), os.path.join(place, b"run" + FILE)
        shutil.copy(pathlib.Path(__file__).resolve().parent / "job.py", program)
        host = os.fsencode("h" + CORE)[:63]
        own_host = []
        if os.geteuid() == 0 and subprocess.run(["unshare", "-u", "true"], capture_output=True).returncode == 0:
            code = "import ctypes, os, sys; h = bytes.fromhex(sys.argv[1]); assert ctypes.CDLL(None).sethostname(h, len(h)) == 0; os.execv(sys.argv[2], sys.argv[2:])"
            own_host = ["unshare", "-u", jobs.PYTHON, "-c", code, host.hex()]
        done = subprocess.run(
            [*([*jobs.MPIRUN, "-np", str(ranks)] if ranks > 1 else []), *own_host, jobs.LOCKSTEP, "run", "-o", run, "--live", "1", "--after", "analyze", "--",
             jobs.PYTHON, program, NAME.encode(), b"\xff\xfe", str(steps), str(pause_s), *([os.path.join(run, b"ranks/rank-00000.spool")] if killed else [])], cwd=place, capture_output=True, timeout=300,
            env={**{os.fsencode(k): os.fsencode(v) for k, v in jobs.ENVIRONMENT.items()}, **(environment or {})})
        self.assertEqual(done.returncode, -signal.SIGKILL if killed else 0, done.stderr)
        self.assertEqual(self.clean(done.stdout, "lockstep run (output)"), "")
        self.clean(done.stderr, "lockstep run (error)")
        return run

    # ---- What is run on them ----

    def try_all(self, run, other):
        """Every command that there is, in all its forms of output."""
        out = os.path.join(os.fsencode(self.here), b"out" + FILE)
        elsewhere = {
            "run": [], "tune": [], "man": [], "completion": [["bash"], ["zsh"], ["fish"]], "import": [], "open": [],
            "analyze": [[run], [run, "--json", "-"], [run, "--bytes-matrix", "-"], [run, "--no-replay", "-j", "1"]]
            + [[run, "--explain", n] for n in (1, 2, 3)]
            + [[run, "--table", table, *more] for table in self.tables for more in ([], ["--rank", "all", "--top", "0"], ["--csv", "-"], ["--json", "-"])]
            + [[run, "--table", "kernels", "--filter", NAME]],
            "diff": [[run, other], [other, run, "--json", "-"], [run, other, "--markdown", "-"], [run, "--save-baseline", out + b".json"], [out + b".json", other]],
            "export": [[run, "--format", kind, "-o", out + kind.encode()] for kind in FORMATS]
            + [[run, "--format", kind, "-o", b"/proc/" + FILE] for kind in ("perfetto", "otf2")],
            "info": [[run], [run, "--json", "-"], [run, "--digest"]],
            "report": [[run, "-o", out + b".html"]],
            "gather": [[run, "-o", out + b"gathered"], [run, run, "-o", out + b"gathered"], [b"host\x1b:" + run, "-o", out + b"not"]],
            "recover": [[run], [run, "--json", "-"]],
            "doctor": [[run], [run, "--json", "-"], ["--program", out, "--ranks", "1"]],
            "merge": [[run], [run, "--json", "-"]],
            "whatif": [[run], [run, "--json", "-"], [run, "--without-rank", "0"]],
        }
        for command in self.commands:
            for words in elsewhere.get(command, [[run], [run, "--json", "-"]]):
                # A one-rank run has no replay, and so on: what is said then must be clean as well.
                output, _, code = self.run_clean(command, *words, codes=None)
                self.assertIn(code, (0, 1, 2, 3, 4, 5), (command, words))
                if words[-2:] == ["--json", "-"] and code in (0, 3, 4):
                    json.loads(output)

    def test_traces(self):
        directory = self.hostile_traces()
        run = os.path.join(os.fsencode(self.here), b"imported" + FILE)
        self.run_clean("import", "kineto", directory, "-o", run)
        self.run_clean("analyze", directory)  # By way of the cache, beside them.
        text, _, _ = self.run_clean("analyze", run, "--table", "kernels")
        self.assertIn("né训🚀\\x1b]0;own", text)
        # Nothing grew with the long name but its own, shortened line.
        self.assertLess(max(len(line) for line in text.splitlines()), 1000)
        exact, _, _ = self.run_clean("analyze", run, "--table", "kernels", "--top", "0", "--json", "-")
        self.assertIn("void " + LONG, {cell for row in json.loads(exact)["rows"] for cell in row if isinstance(cell, str)})
        self.try_all(run, run)

    def test_recorded(self):
        first, second = self.recorded(b"one", 6), self.recorded(b"two", 8)
        text, _, _ = self.run_clean("info", first)
        self.assertIn("\\x1b]0;owned\\x07", text)
        self.try_all(first, second)

    def test_recorded_mpi(self):
        if not jobs.have("mpirun") or subprocess.run([jobs.PYTHON, "-c", "import mpi4py"], capture_output=True).returncode != 0:
            self.skipTest("no mpi4py")
        run = self.recorded(b"mpi", 8, ranks=2, pause_s=0.3)  # Long enough for a live line.
        self.try_all(run, run)

    def test_killed(self):
        """What an agent left, and what is made of it."""
        run = self.recorded(b"killed", 6, killed=True)
        spool = os.path.join(run, b"ranks/rank-00000.spool")
        self.assertTrue(os.path.exists(spool))
        for words in (["info", run], ["info", spool], ["doctor", run], ["recover", run], ["recover", run, "--json", "-"], ["analyze", run], ["info", run]):
            self.run_clean(*words)

    def test_environment(self):
        """Values of variables that end up in messages: of refused sources, of places that cannot be written."""
        paths = {name: FILE for name in (b"NVTX_INJECTION64_PATH", b"NCCL_PROFILER_PLUGIN", b"CUDA_INJECTION64_PATH", b"TMPDIR", b"HOME",
                                         b"XDG_CACHE_HOME", b"MASTER_ADDR", b"SLURM_JOB_ID", b"SLURM_STEP_ID")}
        self.recorded(b"environment", 5, environment=paths)
        for words in (["doctor", "--program", FILE, "--ranks", "1"], ["run", "-o", "/proc/lockstep/" + CORE + LINE, "--", "true"], ["run", "--", FILE],
                      ["run", "--spool-dir", FILE, "--", "true"], ["run", "--estimate", "--", "true"], ["analyze"]):
            done = subprocess.run([jobs.LOCKSTEP, *words], cwd=self.here, capture_output=True, timeout=300, stdin=subprocess.DEVNULL,
                                  env={**{os.fsencode(k): os.fsencode(v) for k, v in jobs.ENVIRONMENT.items()}, **paths, b"PATH": os.fsencode(os.environ["PATH"]) + b":/" + FILE})
            self.clean(done.stdout, repr(words)[:80] + " (output)")
            self.clean(done.stderr, repr(words)[:80] + " (error)")

    def test_open(self):
        run = self.recorded(b"open", 5)
        server = subprocess.Popen([jobs.LOCKSTEP, "open", run, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = b""
        while b"Ctrl-C" not in said:
            line = server.stdout.readline()
            if not line:
                break
            said += line
        server.send_signal(signal.SIGINT)
        rest, err = server.communicate(timeout=60)
        self.clean(said + rest, "open (output)")
        self.clean(err, "open (error)")
        self.assertIn(b"Ctrl-C", said)

    def test_words_of_the_command_line(self):
        """What cannot be understood or found is named, harmlessly: each command, each option."""
        wrong = os.fsencode(NAME) + b"\xff\x9b"
        self.run_clean(wrong, codes=None)
        self.run_clean(b"--" + wrong, codes=None)
        for command in self.commands:
            text = self.plain(command, "--help")
            self.run_clean(command, wrong, codes=None, env={"LOCKSTEP_OUTPUT": "/dev/null/x"})
            self.run_clean(command, b"--" + wrong, codes=None)
            for option in words_of(text, r"(?<![\w-])(--[a-z][a-z-]+)"):
                if command == "doctor" and option in ("--ranks", "--program", "--output"):
                    continue  # They are followed by tests of the machine.
                more = ["--", "true"] if command == "run" else []
                self.run_clean(command, option, wrong, *more, codes=None, cwd=self.here)

    def test_colors(self):
        """On a terminal our own colors are all that is obeyed."""
        run = self.recorded(b"colors", 6)
        for words in (["analyze", run], ["analyze", run, "--explain", "1"], ["analyze", run, "--table", "ranges"], ["diff", run, self.recorded(b"other colors", 6)], ["doctor", run], ["info", run]):
            control, terminal = pty.openpty()
            process = subprocess.Popen([jobs.LOCKSTEP, *words], stdout=terminal, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                       env=dict(jobs.ENVIRONMENT, TERM="xterm", LC_ALL="C.UTF-8"))
            os.close(terminal)
            said = pseudo_terminal.read_until_closed(control)
            process.wait(60)
            self.clean(said, repr(words[:1]), colors=True)
            if words[0] == "analyze" and len(words) == 2:
                self.assertRegex(said, b"\x1b\\[1m")

if __name__ == "__main__":
    program = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False)
    jobs.leave(program.result)
