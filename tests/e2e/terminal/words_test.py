"""Help and mistakes, to the byte: what each command says about itself, and to who calls it wrongly.

usage: words_test.py BUILD_DIR [--update] [unittest arguments]
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import expecting

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
LOCKSTEP = str(BUILD / "lockstep")
CLEAN = {k: v for k, v in os.environ.items()
         if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_", "PMI_", "SLURM_")) and k != "COLUMNS"}

# Command -> command lines that people type by mistake. In the directory are two runs (run, other), one whose rank files
# are cut short (damaged), rank files without their run (alone.h5, cut.h5), a program (app), an empty directory (empty)
# and no latest run.
MISTAKES = {
    "lockstep": ["", "anlyze", "--versoin", "hlep", "versoin", "analyse run", "run.json", "empty", "./app", "--steps 1:3 run -- ./app", "--"],
    "run": ["run", "run --", "run --stpes 1:3 -- ./app", "run -np 4 ./app", "run --ranks 3..5 -- ./app", "run --clock utc -- ./app",
            "run --steps 5 -- ./app", "run --json out -- ./app", "run --steps -- ./app", "run --quiet=maybe -- ./app"],
    "import": ["import", "import traces", "import traces -o", "import --outptu x traces", "import nsyss report.sqlite -o x", "import empty -o x"],
    "merge": ["merge --jbos 2", "merge run extra", "merge run --steps 5", "merge nowhere", "merge run --clock utc", "merge --quite run"],
    "analyze": ["analyze", "analyze --explian 1", "analyze run --explain", "analyze run --explain first", "analyze run --explain 99",
                "analyze run -json out", "analyze run --ranks 0", "analyze run --table kernel", "analyze run --table ranges --rank 0..3",
                "analyze run --live 5", "analyze run --steps 5",
                "analyze run other", "analyze run/ranks/rank-00000.h5", "analyze alone.h5", "analyze cut.h5", "analyze damaged", "analyze run --table opss",
                "analyze run --table nothing-like-it"],
    "report": ["report --ouput x run", "report run extra", "report run --timeline-steps 5", "report empty", "report run -o"],
    "whatif": ["whatif run --without-rnak 3", "whatif run --without-rank first", "whatif run --without-rank 99", "whatif run --bandwidth fast",
               "whatif run --bandwidth 0", "whatif run --overlap yes", "whatif run extra"],
    "info": ["info --digset run", "info run --ranks 0..3", "info run --ranks 99", "info nowhere", "info run extra"],
    "export": ["export --fromat csv run", "export run --format svg", "export run --format perfeto", "export --format=cvs run", "export run --ranks first", "export run --ranks 99", "export run --min-dur soon",
               "export run --budget 0"],
    "open": ["open --setp 3", "open run --port 65536", "open run --step first", "open run --step 999", "open empty"],
    "diff": ["diff", "diff run run run", "diff --fial-on x run", "diff run run --fail-on step", "diff run nowhere", "diff run run", "diff run run --json - --markdown -"],
    "tune": ["tune", "tune --", "tune --bugdet 1m -- ./app", "tune --budget soon -- ./app", "tune --only dpd -- ./app", "tune --steps 3 -- ./app",
             "tune -- nowhere", "tune --json"],
    "recover": ["recover --stlae", "recover nowhere", "recover empty", "recover run extra", "recover run --json"],
    "gather": ["gather", "gather run", "gather run -o", "gather --outptu x run", "gather -o x", "gather run --output", "gather run -o x --rhs ssh"],
    "hang": ["hang", "hang empty", "hang nowhere", "hang --memebrs dumps", "hang run run", "hang 4711", "hang dumps --least-wait soon"],
    "demo": ["demo 9", "demo 0", "demo late", "demo nothing-like-it", "demo 1 2", "demo --lsit"],
    "doctor": ["doctor --prgram ./app", "doctor --ranks none", "doctor nowhere", "doctor run extra", "doctor empty"],
    "completion": ["completion", "completion tcsh", "completion bash zsh", "completion --shell bash", "completion -bash"],
    "man": ["man run", "man --html", "man -k", "man 1 lockstep", "man --json"],
    "import kineto": ["import kineto", "import kineto traces", "import kineto empty -o x", "import kineto app -o x", "import kineto --outptu x app",
                      "import kineto app -o run", "import kineto app -o"],
    "import nsys": ["import nsys", "import nsys report.nsys-rep -o x", "import nsys empty -o x", "import nsys app -o x", "import nsys --froce app",
                    "import nsys app --python-functions"],
}


def lockstep(line, place):
    return subprocess.run([LOCKSTEP, *shlex.split(line)], cwd=place, env=dict(CLEAN, LC_ALL="C.UTF-8"), capture_output=True,
                          text=True, timeout=60, stdin=subprocess.DEVNULL)


def commands():
    """Paths of all commands, as help lists them."""
    found, waiting = [], [""]
    while waiting:
        path = waiting.pop(0)
        found.append(path)
        text = lockstep(path + " --help", "/").stdout
        below = re.search(r"^Subcommands:\n(.*?)(\n\n|\Z)", text, re.S | re.M)
        waiting += [f"{path} {name}".strip() for name in re.findall(r"^  ([a-z][\w-]*) ", below[1] + " ", re.M)] if below else []
    return found


class Words(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-words-"))
        (cls.place / "spec").write_text("ranks 2\nsteps 6\nnetwork alpha=20us bandwidth=5GB/s\nslow rank=1 factor=1.4\n"
                                        "step\n  forward 4ms\n  allreduce 1MiB\nend\n")
        subprocess.run([BUILD / "make_run", cls.place / "spec", cls.place / "run"], check=True)
        (cls.place / "spec").unlink()
        (cls.place / "empty").mkdir()
        for copy in ("other", "damaged"):
            shutil.copytree(cls.place / "run", cls.place / copy)
        whole = (cls.place / "run/ranks/rank-00000.h5").read_bytes()
        (cls.place / "alone.h5").write_bytes(whole)
        for cut in ("cut.h5", "damaged/ranks/rank-00000.h5", "damaged/ranks/rank-00001.h5"):
            (cls.place / cut).write_bytes(whole[:5000])
        (cls.place / "app").write_text("#!/bin/sh\n")
        (cls.place / "app").chmod(0o755)
        lockstep("analyze run -q", cls.place)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.place)

    def test_help(self):
        for path in commands():
            with self.subTest(command=path):
                done = lockstep(path + " --help", self.place)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                expecting.check(self, "help/" + (path.replace(" ", "-") or "lockstep"), done.stdout)

    def test_mistakes(self):
        for command, lines in MISTAKES.items():
            self.assertGreaterEqual(len(lines), 5, command)
            with self.subTest(command=command):
                shown = ""
                for line in lines:
                    done = lockstep(line, self.place)
                    self.assertEqual(done.stdout, "", line)
                    self.assertIn(done.returncode, (1, 2), (line, done.stderr))
                    if line:  # What, where, and one line of what to do.
                        said = [each for each in done.stderr.splitlines() if not each.startswith("lockstep: ")]
                        self.assertTrue(said[0].startswith("error: ") and said[-1].startswith("  try: ") and len(said) <= 3, (line, done.stderr))
                    shown += f"$ lockstep {line}".rstrip() + f"\n{done.stderr}exit {done.returncode}\n\n"
                expecting.check(self, "mistakes/" + command.replace(" ", "-"), shown.replace(str(self.place), "PLACE"))

    def test_every_command_is_here(self):
        self.assertEqual(set(MISTAKES), {path or "lockstep" for path in commands()})

    def test_what_was_meant(self):
        """The last line is a command line that is understood, if it names one."""
        for line, meant in (("anlyze", "lockstep analyze"), ("--versoin", "lockstep --version"), ("hlep", "lockstep --help"),
                            ("analyze run --explian 1", "lockstep analyze --explain N|trust"), ("run --stpes 1:3 -- ./app", "lockstep run --steps A:B[/N] -- PROGRAM"),
                            ("run -np 4 ./app", "mpirun -np 4 lockstep run -- PROGRAM"), ("--steps 1:3 run -- ./app", "lockstep run --steps A:B[/N] -- PROGRAM")):
            with self.subTest(line=line):
                done = lockstep(line, self.place)
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stderr.splitlines()[-1], "  try: " + meant)

    def test_as_other_programs_have_it(self):
        for line, same in (("version", "--version"), ("help", "--help"), ("help analyze", "analyze --help"), ("help import nsys", "import nsys --help")):
            with self.subTest(line=line):
                done = lockstep(line, self.place)
                self.assertEqual((done.returncode, done.stdout), (0, lockstep(same, self.place).stdout))

    def test_output_that_takes_nothing(self):
        for line in ("analyze run -q", "info run", "--help", "man", "analyze run -q --table ranges", "hang run", "diff run --save-baseline - -q"):
            with self.subTest(line=line), open("/dev/full", "w") as full:
                done = subprocess.run([LOCKSTEP, *shlex.split(line)], cwd=self.place, env=CLEAN, stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertIn("No space left on device", done.stderr)

    def test_no_command(self):
        done = lockstep("", self.place)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertLessEqual(len(done.stderr.splitlines()), 6)
        (self.place / "lockstep.out").mkdir()
        (self.place / "lockstep.out/20260101-000000-abcd").mkdir()
        (self.place / "lockstep.out/latest").symlink_to("20260101-000000-abcd")
        self.addCleanup(shutil.rmtree, self.place / "lockstep.out")
        self.assertIn("the verdict on the latest run here, 20260101-000000-abcd", lockstep("", self.place).stderr)

    def test_quiet(self):
        """run -q is run --quiet, alone and together with other short flags."""
        said = [lockstep(f"run {flags} --after none -- ./app", self.place).stderr for flags in ("-q -o a", "--quiet -o b", "-qo c")]
        self.assertEqual(said, [""] * 3)
        for name in "abc":
            self.assertTrue((self.place / name / "manifest.json").exists())
            shutil.rmtree(self.place / name)

    def test_ranks_are_written_alike(self):
        """One grammar: the same lists are taken and refused by every flag that takes ranks."""
        takers = {"export run --format csv -o out --ranks {}": "--ranks", "whatif run -q --without-rank {}": "--without-rank",
                  "analyze run -q --table ranges --rank {}": "--rank", "info run --ranks {}": "--ranks",
                  "run -q -o recorded --after none --ranks {} -- ./app": "--ranks"}
        for line, flag in takers.items():
            for good in ("0", "0-0", "0:1"):
                with self.subTest(line=line, ranks=good):
                    done = lockstep(line.format(good), self.place)
                    self.assertIn(done.returncode, (0, 3), done.stderr)
            for wrong in ("x", "0,", ",0", "0-", "1-0", "0..1", "+1", "0x1", "3:3", "99999999999", "2147483647"):
                with self.subTest(line=line, ranks=wrong):
                    done = lockstep(line.format(wrong), self.place)
                    self.assertEqual(done.returncode, 2)
                    self.assertRegex(done.stderr, rf"^error: not a list of ranks: '{re.escape(wrong)}'\n  {flag}\n  try: {flag} 0-3,7")
            for made in ("out", "recorded"):
                shutil.rmtree(self.place / made, ignore_errors=True)


if __name__ == "__main__":
    unittest.main()
