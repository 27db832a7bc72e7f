"""What commands show on terminals of several widths, in UTF-8 and in plain ASCII: to the byte, and that no line is wider and no word broken.

usage: terminal_test.py BUILD_DIR [--update] [unittest arguments]
"""
import collections
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[1] / "hang")]
import expecting
import jobs_that_stop
import pseudo_terminal

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
LOCKSTEP = str(BUILD / "lockstep")
WIDTHS = (60, 80, 120, 200)
# analysis/report/text_lines.cc. A point between words is a bar there, a point of a plot is a full stop.
PLAIN = str.maketrans({"█": "#", "▒": "=", "░": "-", "▓": "%", "→": "->", "≤": "<=", "±": "+-", "…": "...", "–": "-", "·": "."})
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_") and k not in ("COLUMNS", "LC_CTYPE", "LANG")}

# With a late rank in the second run.
RUN = """ranks 6
nodes 2
steps 24
seed 3
jitter 1%
{more}
network alpha=40us bandwidth=4GB/s
comm tp block=2
step
  input 2ms
  forward 8ms
  allreduce 1MiB comm=tp
  backward 16ms buckets=25MiB,25MiB,1MiB
  waitall
  allreduce 200kB
  optimizer 2ms
end
"""
COMMANDS = {
    "analyze": ["analyze", "after", "-q"],
    "explain": ["analyze", "after", "-q", "--explain", "1"],
    "table": ["analyze", "after", "-q", "--table", "ranges"],
    "info": ["info", "after"],
    "doctor": ["doctor", "after"],
    "diff": ["diff", "before", "after", "-q"],
    "whatif": ["whatif", "after", "-q"],
    "hang": ["hang", "dumps"],
    "merge": ["merge", "gapped"],
    "recover": ["recover", "gapped"],
    "gather": ["gather", "gapped", "nowhere", "-o", "gathered"],
    "export": ["export", "gapped", "-o", "exported.pftrace"],
    "import": ["import", "traces", "-o", "imported"],
    "report": ["report", "after", "-o", "page.html"],
    "settings": ["tune", "--list"],
    "open": ["open", "before", "--port", "0"],
    # Of what an agent tells by itself: a program that says something, one that fails, one whose directory is taken.
    "run": ["run", "-o", "recorded", "--", "./says"],
    "run_failed": ["run", "-o", "recorded", "--", "./fails"],
    "run_taken": ["run", "-o", "before", "--after", "none", "--", "./says"],
}
# What they make, and say something else about if it is there.
MADE = {"gather": "gathered", "export": "exported.pftrace", "import": "imported", "report": "page.html", "run": "recorded", "run_failed": "recorded",
        "run_taken": "before-2"}


def setUpModule():
    global PLACE
    # A short name of one length: paths are part of what is wrapped.
    PLACE = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-", dir="/tmp"))
    for name, more in (("before", ""), ("after", "slow rank=4 factor=1.3"), ("gapped", "missing rank=3")):
        spec = PLACE / (name + ".trace")
        spec.write_text(RUN.format(more=more))
        subprocess.run([BUILD / "make_run", spec, PLACE / name], check=True)
    for name, does in (("says", "echo said"), ("fails", "echo said; exit 3")):
        (PLACE / name).write_text(f"#!/bin/sh\n{does}\n")
        (PLACE / name).chmod(0o755)
    job = jobs_that_stop.host_stops(jobs_that_stop.training("said", 8), 5)
    job.play().write(PLACE / "dumps")
    with open(PLACE / "gapped/ranks/rank-00005.h5", "r+b") as file:  # As after a full disk.
        file.truncate(5000)
    subprocess.run([LOCKSTEP, "export", "before", "--format", "kineto", "-o", "traces"], cwd=PLACE, env=CLEAN, check=True, capture_output=True)
    for name, words in COMMANDS.items():  # Afterwards nothing is merged, and all files are there.
        if name != "open":
            subprocess.run([LOCKSTEP, *words], cwd=PLACE, env=CLEAN, capture_output=True, timeout=120)


def tearDownModule():
    shutil.rmtree(PLACE, ignore_errors=True)


def shown_by(name, columns, locale):
    """What COMMANDS[name] shows."""
    if name in MADE:
        made = PLACE / MADE[name]
        shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    text = on_terminal(COMMANDS[name], columns, locale).decode()
    return re.sub(r"\r[^\r\n]*\x1b\[K", "", text)  # Progress, which the text replaces.


def on_terminal(words, columns, locale="C.UTF-8", **more):
    """What is shown on a terminal with so many columns."""
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    mode = termios.tcgetattr(terminal)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    env = {**CLEAN, "TERM": "xterm", "LC_ALL": locale, "NO_COLOR": "1", **more}
    env = {k: v for k, v in env.items() if v is not None}
    process = subprocess.Popen([LOCKSTEP, *words], stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL, cwd=PLACE, env=env)
    os.close(terminal)
    said = b""
    if words[0] == "open":  # Serves until it is interrupted.
        while b"ends it" not in said and (piece := os.read(control, 65536)):
            said += piece
        process.send_signal(signal.SIGINT)
    said += pseudo_terminal.read_until_closed(control)
    if process.wait(60) < 0:
        raise AssertionError(f"{words} ended by signal {-process.returncode}: {said}")
    return said


def columns_of(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def characters(text):
    return collections.Counter("".join(text.split()).replace("|", "."))


def same_everywhere(text):
    """Without what differs between places, versions and libraries, in as many columns."""
    def hidden(found):
        return re.sub(r"\S", "x", found[0])
    text = text.replace(str(PLACE), "P" * len(str(PLACE)))
    text = re.sub(r"(?<=from )\d+(\.\d+)? \wB|\b\d+(\.\d+)? \wB(?= of |    opens|\) copied)|(?:(?<= in )|(?<= in\n  ))\d\.\d(?= s)", lambda found: re.sub(r"\d", "0", found[0]), text)
    text = re.sub(r"(?m)^  (?:timeline\.h5|analysis\.json) .*$", lambda line: re.sub(r"\d+(\.\d+)? \wB", "SIZE", line[0]), text)
    if port := re.search(r"127\.0\.0\.1:(\d{5})", text):
        text = text.replace(port[1], "PPPPP")
    text = re.sub(r"\b[0-9a-f]{32}\b|(?<=P:127\.0\.0\.1:PPPPP )\S+", lambda found: "x" * min(4, len(found[0])), text)
    text = re.sub(r"(?<=rank file \()\S+ \wB(?=\))", "SIZE", text)
    text = re.sub(r"(?<=timeline\.pftrace )\(.*\)|(?<= agent )\S+ \ws(?= CPU)", "SIZE", text)
    # The width of a host's name.
    text = re.sub(r"(?m)^(  0  )\S+ +(?=0 )|^(  RANKS  ms) +", lambda found: (found[1] or found[2]) + "  ", text)
    text = re.sub(r"(?<=lockstep_version ).*|(?<=version            )\d+\.\d+\.\d+\S*", hidden, text)
    return text


class Terminal(unittest.TestCase):
    def test_what_is_shown(self):
        analysis = json.loads((PLACE / "after/analysis.json").read_text())
        sentences = [analysis["verdict"]] + [f[key] for f in analysis["findings"] for key in ("evidence", "action")]
        self.assertGreater(len(sentences), 4)
        for name in COMMANDS:
            shown = []  # Widths, and what is shown in each of them.
            for columns in (50, *WIDTHS):
                with self.subTest(command=name, columns=columns):
                    text = self.fitting(name, columns, "C.UTF-8")
                    if name == "analyze":
                        whole = " ".join(text.split())
                        for sentence in sentences:
                            self.assertIn(" ".join(sentence.split()), whole)
                    text = same_everywhere(text)
                    if columns in (WIDTHS[0], WIDTHS[-1]):
                        plain = self.fitting(name, columns, "C")
                        self.assertTrue(plain.isascii(), plain)
                        # Plain signs may be wider, so that lines break elsewhere.
                        self.assertEqual(characters(same_everywhere(plain)), characters(text.translate(PLAIN)), plain)
                    if shown and shown[-1][1] == text:
                        shown[-1][0].append(str(columns))
                    elif columns in WIDTHS:
                        shown.append(([str(columns)], text))
            with self.subTest(command=name):
                expecting.check(self, name, "".join(f"---------- {', '.join(widths)} columns\n{text}" for widths, text in shown))

    def fitting(self, name, columns, locale):
        """What it shows: no line is wider than the terminal but a word of its own."""
        text = shown_by(name, columns, locale)
        for line in text.splitlines():
            if " " in line.strip():
                self.assertLessEqual(columns_of(line), columns, text)
        return text

    def test_colours_take_no_columns(self):
        for words in (COMMANDS["analyze"], COMMANDS["diff"], COMMANDS["doctor"]):
            plain = on_terminal(words, 70).decode()
            painted = on_terminal(words, 70, NO_COLOR=None).decode()
            self.assertIn("\x1b[", painted)
            self.assertEqual(re.sub("\x1b\\[[0-9;]*m", "", painted), plain)

    def test_help_fits(self):
        for words in ([], ["run"], ["diff"], ["export"], ["import", "kineto"]):
            for columns in (60, 80, 120):
                text = on_terminal([*words, "--help"], columns).decode()
                for line in text.splitlines():
                    if " " in line.strip():
                        self.assertLessEqual(columns_of(line), columns, text)

    def test_a_file_gets_a_hundred_columns(self):
        for more in ({}, {"COLUMNS": "40"}, {"COLUMNS": "300"}):
            done = subprocess.run([LOCKSTEP, *COMMANDS["analyze"]], cwd=PLACE, env=dict(CLEAN, LC_ALL="C.UTF-8", **more), capture_output=True, text=True)
            self.assertLessEqual(max(map(columns_of, done.stdout.splitlines())), 100)
            self.assertGreater(max(map(columns_of, done.stdout.splitlines())), 90)

    def test_a_terminal_that_does_not_tell_its_width(self):
        self.assertEqual(on_terminal(COMMANDS["analyze"], 0, COLUMNS="60"), on_terminal(COMMANDS["analyze"], 60))
        for odd in ("", "many", "-5", "0"):
            self.assertEqual(on_terminal(COMMANDS["analyze"], 0, COLUMNS=odd), on_terminal(COMMANDS["analyze"], 100))

    def test_what_is_left_out_is_said(self):
        narrow = on_terminal(COMMANDS["analyze"], 60).decode()
        self.assertRegex(narrow, r"(?m)^  not shown in 60 columns: ")
        self.assertNotIn("not shown in", on_terminal(COMMANDS["analyze"], 200).decode())

    def test_json_does_not_depend_on_the_width(self):
        for words in (["analyze", "after", "-q", "--json", "-"], ["info", "after", "--json", "-"], ["doctor", "after", "--json", "-"],
                      ["diff", "before", "after", "-q", "--json", "-"], ["whatif", "after", "-q", "--json", "-"], ["hang", "dumps", "--json", "-"]):
            narrow = on_terminal(words, 50)
            self.assertEqual(narrow, on_terminal(words, 200), words)
            json.loads(narrow)

    def test_info_of_many_ranks_is_a_page(self):
        spec = PLACE / "many.trace"
        spec.write_text("ranks 512\nnodes 64\nsteps 2\nmissing rank=17\nnetwork alpha=30us bandwidth=20GB/s\nstep\n  forward 6ms\n  allreduce 1MiB\nend\n")
        subprocess.run([BUILD / "make_run", spec, PLACE / "many"], check=True)

        def info(*words, code=3):
            done = subprocess.run([LOCKSTEP, "info", "many", *words], cwd=PLACE, env=CLEAN, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, code, done.stderr)
            return done.stdout

        page = info()
        self.assertLess(len(page.splitlines()), 80)
        self.assertTrue(page.startswith("511 of 512 ranks recorded: nothing is there of rank 17\n"), page[:200])
        self.assertIn("every file:  lockstep info many --ranks all\n", page)
        some = info("--ranks", "3,7-8")
        self.assertEqual([int(rank) for rank in re.findall(r"(?m)^/.*/ranks/rank-(\d+)\.h5$", some)], [3, 7, 8])
        self.assertEqual(len(re.findall(r"(?m)^/.*/ranks/rank-\d+\.h5$", info("--ranks", "all"))), 511)
        self.assertIn("nothing is there of rank 17", subprocess.run([LOCKSTEP, "info", "many", "--ranks", "16-18"], cwd=PLACE, env=CLEAN, capture_output=True, text=True).stderr)
        document = json.loads(info("--json", "-"))
        self.assertEqual((len(document["files"]), document["ranks_missing"]), (511, [17]))
        self.assertIn("not a list of ranks", subprocess.run([LOCKSTEP, "info", "many", "--ranks", "x"], cwd=PLACE, env=CLEAN, capture_output=True, text=True).stderr)
        # One that is not like the others is named.
        shutil.copy(PLACE / "after/ranks/rank-00004.h5", PLACE / "many/ranks/rank-00099.h5")
        self.assertIn("\n  rank-00099.h5: 144 rows in mpi_calls, others 2\n", info())


if __name__ == "__main__":
    unittest.main()
