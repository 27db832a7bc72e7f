#!/usr/bin/env python3
"""`lockstep run --stacks calls`: which line called which operation, of C++ and of every Python that is here, in the tables and
when the job hangs; without it, nothing of this is recorded.

usage: calls_test.py BUILD_DIR [unittest arguments]
"""
import csv
import io
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = jobs.PROGRAMS / "tests/stacks_calls_job"


def marks(source):
    return {name: number for number, line in enumerate((HERE / source).read_text().splitlines(), 1)
            for name in re.findall(r"mark: (\w+)", line)}


class Calls(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-calls-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def record(self, words, *flags, ranks=2, env=None):
        if not shutil.which(jobs.MPIRUN[0]):
            self.skipTest("skipped: mpirun is missing")
        done = jobs.run([*jobs.MPIRUN, "-np", ranks, jobs.LOCKSTEP, "run", "--quiet", "-o", "out", *flags, "--", *words], self.place, env)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done

    def callers(self):
        """(kind, function, file, line) -> calls of all ranks."""
        done = jobs.run([jobs.LOCKSTEP, "analyze", "out", "--table", "callers", "--csv", "-"], self.place)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        rows = csv.DictReader(io.StringIO("".join(line for line in done.stdout.decode().splitlines(True) if not line.startswith("#"))))
        return {(row["kind"], row["function"].split("::")[-1], row["file"], int(row["line"] or 0)): int(row["calls"])
                for row in rows if row["rank"] == "all"}

    @unittest.skipUnless(PROGRAM.exists(), "stacks_calls_job is missing")
    @unittest.skipUnless((jobs.BUILD / "lockstep-stacks").exists(), "no lockstep-stacks: built without libdw")
    def test_cpp(self):
        self.record([PROGRAM], "--stacks", "calls")
        at = marks("calls_job.cc")
        found = self.callers()
        wanted = {
            ("all-reduce", "Sum", "calls_job.cc", at["sum"]), ("broadcast", "Agree", "calls_job.cc", at["agree"]),
            ("recv", "Pass", "calls_job.cc", at["receive"]), ("send", "Pass", "calls_job.cc", at["send"]),
            ("barrier", "main", "calls_job.cc", at["barrier"])}
        # Names are looked for at idle priority: where others want the cores, a program of a second may end before.
        self.assertEqual(set(found), wanted)
        # Of two ranks; the last of 20 steps has no end.
        self.assertEqual(set(found.values()), {38})
        self.assertEqual(jobs.RankFile(self.place / "out/ranks/rank-00000.h5").losses, {})

    def check_python(self, mark, ranks=2):
        at, found = marks("calls_job.py"), self.callers()
        # 13 of each rank; where the loop counts as steps, the last one has no end.
        self.assertIn(found.get(("all-reduce", "reduce", "calls_job.py", at[mark])), (12 * ranks, 13 * ranks), found)
        for path in sorted((self.place / "out/ranks").glob("rank-*.h5")):
            rank = jobs.RankFile(path)
            stacks = rank.tables["stacks"]

            def names(row):
                while row < len(stacks["parent"]):
                    yield rank.text(stacks["function"][row]), rank.text(stacks["file"][row]), int(stacks["line"][row])
                    row = stacks["parent"][row]

            callers = {tuple(names(row)) for row in rank.column("collectives", "caller")}
            self.assertTrue(any(("each_step", "calls_job.py", at["step"]) in stack for stack in callers), callers)
            made = {line for stack in callers for function, file, line in stack if function == "made"}
            self.assertEqual(made, {2, 3, 4}, callers)

    def test_mpi4py(self):
        tried = 0
        for python in (jobs.PYTHON,):
            if subprocess.run([python, "-c", "import mpi4py"], stderr=subprocess.DEVNULL).returncode == 0:
                self.record([python, HERE / "calls_job.py", "mpi"], "--stacks", "calls")
                self.check_python("mpi")
                tried += 1
        if not tried:
            self.skipTest("skipped: mpi4py is missing")

    def test_gloo(self):
        tried = 0
        for python in (jobs.PYTHON, str(jobs.BUILD / "torch2/bin/python")):
            if subprocess.run([python, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
                continue
            with self.subTest(python=python):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    port = str(probe.getsockname()[1])
                script = 'export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE MASTER_ADDR=127.0.0.1; exec "$@"'
                shutil.rmtree(self.place / "out", ignore_errors=True)
                self.record(["sh", "-c", script, "sh", python, HERE / "calls_job.py", "gloo"], "--stacks", "off,calls",
                            env={"MASTER_PORT": port})
                self.check_python("gloo")
                tried += 1
        if not tried:
            self.skipTest("skipped: torch is missing")

    @unittest.skipUnless(PROGRAM.exists(), "stacks_calls_job is missing")
    def test_a_hang_says_the_line(self):
        out = (self.place / "said").open("w+")
        self.addCleanup(out.close)
        job = subprocess.Popen([*jobs.MPIRUN, "-np", "4", jobs.LOCKSTEP, "run", "-q", "-o", "out", "--hang-after", "1", "--stacks", "calls", "--",
                                str(PROGRAM), "hangs"], cwd=self.place, env=jobs.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=out)
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)  # mpirun ends its ranks then.
        end = time.monotonic() + 90
        while time.monotonic() < end and "HANG  " not in (self.place / "said").read_text():
            time.sleep(0.2)
        time.sleep(1)
        said = (self.place / "said").read_text()
        at = marks("calls_job.cc")
        self.assertRegex(said, rf"called barrier[^\n]*, calls_job.cc:{at['barrier']} main")
        self.assertRegex(said, rf"rank 1 called all-reduce[^\n]*, calls_job.cc:{at['sum']} lockstep_demo::Sum")

    @unittest.skipUnless(PROGRAM.exists(), "stacks_calls_job is missing")
    def test_not_asked_for(self):
        self.record([PROGRAM])
        rank = jobs.RankFile(self.place / "out/ranks/rank-00000.h5")
        self.assertEqual(set(map(int, rank.column("collectives", "caller"))), {0xffffffff})
        table = jobs.run([jobs.LOCKSTEP, "analyze", "out", "--table", "callers"], self.place)
        self.assertIn(b"--stacks calls", table.stdout + table.stderr)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result)
