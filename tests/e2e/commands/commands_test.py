"""Every command has help with an example; the man page and the completions name every command and flag of it.

usage: commands_test.py BUILD_DIR [unittest arguments]
"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

LOCKSTEP = sys.argv.pop(1) + "/lockstep"
ROOT = pathlib.Path(__file__).resolve().parents[3]
COMMANDS = (ROOT / "cli/commands.def").read_text()
FORMATS = (ROOT / "export/formats.def").read_text()


def run(*words):
    done = subprocess.run([LOCKSTEP, *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.returncode, done.stderr)
    return done.stdout


def help_of(*path):
    """(text, commands below, flags)"""
    text = run(*path, "--help")
    below = re.search(r"^Subcommands:\n(.*?)(\n\n|\Z)", text, re.S | re.M)
    commands = re.findall(r"^  ([a-z][\w-]*) ", below[1] + " ", re.M) if below else []
    options = re.search(r"^Options:\n(.*?)(\n\n|\Z)", text, re.S | re.M)
    # The names stand at the line's begin: "  -o,--output FILE   what it does".
    flags = [name for names in re.findall(r"^  (-[\w,-]+)", options[1], re.M) for name in names.split(",")]
    return text, commands, flags


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.helps = {}
        waiting = [()]
        while waiting:
            path = waiting.pop()
            text, below, flags = help_of(*path)
            cls.helps[path] = (text, flags)
            waiting += [(*path, name) for name in below]

    def test_all_are_seen(self):
        listed = re.findall(r"^LS_COMMAND\((\w+)\)", COMMANDS, re.M)
        self.assertGreater(len(listed), 15)
        for name in listed:
            self.assertIn((name.lower(),), self.helps)
        self.assertGreater(sum(len(flags) for _, flags in self.helps.values()), 80)

    def test_help_has_an_example(self):
        for path, (text, _) in self.helps.items():
            if path:
                self.assertRegex(text, r"Examples?:\n  .*lockstep ", path)

    def test_man_page_names_every_flag(self):
        page = run("man")
        for path, (_, flags) in self.helps.items():
            begin = page.index(f".SS lockstep {' '.join(path)}\n") if path else 0
            section = page[begin:page.find("\n.S", begin + 1)].replace("\\-", "-")
            for flag in flags if path else ():
                self.assertIn(f"\\fB{flag}\\fR", section, path)

    def test_man_page_is_well_formed(self):
        if not shutil.which("man"):
            self.skipTest("no man")
        done = subprocess.run(["man", "--warnings", "-l", "-"], input=run("man"), capture_output=True, text=True,
                              env={"MANWIDTH": "100", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
        self.assertEqual(done.stderr, "")
        self.assertIn("--bucket-cap-mb", done.stdout)

    def completed(self, words):
        """What bash offers for the last of `words`."""
        script = ('source <(%s completion bash) && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); compopt() { :; }; '
                  '_lockstep; printf "%%s\\n" "${COMPREPLY[@]}"' % LOCKSTEP)
        done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_bash_completes_every_flag(self):
        for path, (_, flags) in self.helps.items():
            self.assertLessEqual(set(flags), set(self.completed(["lockstep", *path, "-"])), path)
        self.assertEqual(self.completed(["lockstep", "anal"]), ["analyze"])
        self.assertEqual(self.completed(["lockstep", "analyze", "RUN", "--expl"]), ["--explain"])
        self.assertEqual(self.completed(["lockstep", "export", "RUN", "--format", "k"]), ["kineto"])
        self.assertEqual(self.completed(["lockstep", "export", "--format", "=", "k"]), ["kineto"])
        self.assertEqual(set(self.completed(["lockstep", "run", "--start", ""])), {"on", "off"})
        self.assertIn("kernels", self.completed(["lockstep", "analyze", "--table", ""]))
        # A file's name is the shell's own business.
        self.assertEqual(self.completed(["lockstep", "analyze", "--csv", "-"]), [])
        # What follows -- is the program's.
        self.assertEqual(self.completed(["lockstep", "run", "--", "--st"]), [])

    def test_zsh_completes(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh")
        # What zsh's own functions would show, and whether programs are still found while it is made.
        script = ('compdef() { :; }; _files() { :; }; _describe() { command -v ls > /dev/null || print no path; print -l -- ${(P)3}; }; '
                  'eval "$(%s completion zsh)"; words=(lockstep "$@"); CURRENT=$#words; PREFIX=$words[-1]; _lockstep' % LOCKSTEP)
        for path, (_, flags) in self.helps.items():
            done = subprocess.run(["zsh", "-f", "-c", script, "zsh", *path, "-"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), path)
            shown = [line.split(":")[0] for line in done.stdout.splitlines()]
            self.assertNotIn("no path", shown)
            self.assertLessEqual(set(flags), set(shown), path)
        values = subprocess.run(["zsh", "-f", "-c", "compadd() { print -l -- $@; }; " + script, "zsh", "export", "--format", ""],
                                capture_output=True, text=True)
        formats = re.findall(r'FORMAT\(\w+, "(\w+)"', FORMATS)
        self.assertGreater(len(formats), 5)
        self.assertEqual(values.stdout.split(), ["--", *formats])

    def test_zsh_and_fish_name_every_flag(self):
        zsh, fish = run("completion", "zsh"), run("completion", "fish")
        for path, (_, flags) in self.helps.items():
            for flag in flags:
                self.assertIn(f"'{flag}:", zsh, path)
                self.assertRegex(fish, rf" -[ls] {re.escape(flag.lstrip('-'))}\b", path)
        for shell, text in (("zsh", zsh), ("fish", fish)):
            if shutil.which(shell):
                self.assertEqual(subprocess.run([shell, "-n"], input=text, text=True, capture_output=True).stderr, "")


if __name__ == "__main__":
    unittest.main()
