"""Launchers and what ranks need to know of each other before they run.

usage: launching_test.py BUILD_DIR Class

Mpich      ranks of hydra are one run; an MPI library that is not known is named, and called as without Lockstep
Settings   ranks that were recorded differently; --clock agent beside MPI; why clocks are not measured
Torchrun   two nodes of torchrun, with and without a shared directory
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import jobs
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

PROGRAM = """#include <mpi.h>
int main(int argc, char **argv) {
  int rank, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 20; ++i) MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return MPI_Finalize();
}
"""


# An MPI library of nobody's ABI: handles are passed by value, as a structure of two words.
UNKNOWN_MPI = """#include <string.h>
typedef struct { long a, b; } Comm;
static int barriers = 40;
int PMPI_Init(int *argc, char ***argv) { return 0; }
int MPI_Init(int *argc, char ***argv) __attribute__((weak, alias("PMPI_Init")));
int PMPI_Barrier(Comm comm) { return comm.a == 7 && comm.b == 8 ? ++barriers : -1; }
int MPI_Barrier(Comm comm) __attribute__((weak, alias("PMPI_Barrier")));
int PMPI_Finalize(void) { return 0; }
int MPI_Finalize(void) __attribute__((weak, alias("PMPI_Finalize")));
int PMPI_Session_init(long info, long errhandler, Comm *session) { session->a = info; session->b = errhandler; return 0; }
int MPI_Session_init(long info, long errhandler, Comm *session) __attribute__((weak, alias("PMPI_Session_init")));
int PMPI_Get_library_version(char *text, int *length) { strcpy(text, "SP MPI\\t7.1\\nbuilt here"); *length = 10; return 0; }
"""
# MPI_Barrier_init is a function that this library lacks.
OF_UNKNOWN_MPI = """#include <stdio.h>
typedef struct { long a, b; } Comm;
int MPI_Init(int *, char ***), MPI_Barrier(Comm), PMPI_Barrier(Comm), MPI_Finalize(void);
int MPI_Barrier_init(Comm, int, void *) __attribute__((weak));
int main(int argc, char **argv) {
  Comm comm = {7, 8};
  char line[200];
  int n = sprintf(line, "Init %d ", MPI_Init(&argc, &argv));
  n += sprintf(line + n, "Barrier %d ", MPI_Barrier(comm));
  n += sprintf(line + n, "Barrier %d ", MPI_Barrier(comm));
  n += sprintf(line + n, "PMPI_Barrier %d ", PMPI_Barrier(comm));
  n += sprintf(line + n, "weak %d ", MPI_Barrier_init != 0);
  sprintf(line + n, "Finalize %d", MPI_Finalize());
  return puts(line) < 0;
}
"""
SESSIONS_OF_UNKNOWN_MPI = """#include <stdio.h>
typedef struct { long a, b; } Comm;
int MPI_Session_init(long, long, Comm *), MPI_Barrier(Comm);
int main(void) {
  Comm session;
  const int result = MPI_Session_init(7, 8, &session);
  return printf("Session_init %d Barrier %d\\n", result, MPI_Barrier(session)) < 0;
}
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-e2e-")

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def check(self, words, code=0, env=None, **more):
        done = jobs.run(words, more.pop("cwd", self.dir), env, **more)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()

    def compiled(self, text, name, *words, compiler="mpicc"):
        if not shutil.which(compiler):
            self.skipTest(f"no {compiler}")
        pathlib.Path(self.path(name + ".c")).write_text(text)
        subprocess.run([compiler, "-O1", self.path(name + ".c"), "-o", self.path(name), *words], check=True)
        return self.path(name)

    def analysis(self, run, code=0):
        out, _ = self.check([jobs.LOCKSTEP, "analyze", run, "--json", self.path("a.json")], code)
        return out, json.loads(pathlib.Path(self.path("a.json")).read_text())


class Mpich(Case):
    """hydra, and an MPI library that Lockstep does not know."""

    def setUp(self):
        super().setUp()
        self.compiled(UNKNOWN_MPI, "libspmpi.so.7", "-shared", "-fPIC", "-Wl,-soname,libspmpi.so.7", compiler="gcc")
        self.compiled(OF_UNKNOWN_MPI, "app", self.path("libspmpi.so.7"), f"-Wl,-rpath,{self.dir}", compiler="gcc")
        # What hydra's proxy is to its ranks: a parent of that name, which mpiexec told its port.
        pathlib.Path(self.path("proxy.sh")).write_text(
            "for r in 0 1 2; do PMI_RANK=$r PMI_SIZE=3 MPI_LOCALRANKID=$r MPI_LOCALNRANKS=3 "
            f"'{jobs.LOCKSTEP}' run \"$LS_AFTER\" none -- ./app & done\nwait\n")

    def hydra(self, port):
        return self.check(["bash", "-c", f"exec -a /opt/bin/hydra_pmi_proxy bash proxy.sh --control-port {port} --pgid 0"],
                          env={"LS_AFTER": "--after"})

    def test_an_unknown_library_is_named_once_and_called_unchanged(self):
        bare, _ = self.check(["./app"])
        self.assertEqual(bare, "Init 0 Barrier 41 Barrier 42 PMPI_Barrier 43 weak 0 Finalize 0\n")
        out, said = self.hydra("head:4711")
        self.assertEqual(out, 3 * bare)
        lines = [line for line in said.splitlines() if "MPI calls are recorded" in line]
        self.assertEqual(len(lines), 1, said)
        self.assertRegex(lines[0], r"^lockstep: 0 MPI calls are recorded: this Lockstep has no wrappers for "
                                   r"/\S+/libspmpi\.so\.7 \(SP MPI 7\.1\)")
        runs = [p for p in pathlib.Path(self.path("lockstep.out")).iterdir() if p.is_dir() and not p.is_symlink()]
        self.assertEqual(len(runs), 1, runs)
        files = jobs.Run(runs[0]).files()
        self.assertEqual(len(files), 3)
        for file in files.values():
            self.assertEqual(file.calls, {})
        out, analysis = self.analysis(runs[0], 3)
        self.assertRegex(" ".join(out.split()), r"This program uses \S+libspmpi.so.7 \(SP MPI 7.1\), whose calls Lockstep "
                                                "does not record")
        self.assertNotIn("training thread sleeps", " ".join(out.split()))
        self.assertEqual(analysis["run"]["ranks"], 3)

    def test_sessions_of_an_unknown_library(self):
        self.compiled(SESSIONS_OF_UNKNOWN_MPI, "sessions", self.path("libspmpi.so.7"), f"-Wl,-rpath,{self.dir}",
                      compiler="gcc")
        out, said = self.check([jobs.LOCKSTEP, "run", "--after", "none", "--", "./sessions"])
        self.assertEqual(out, "Session_init 0 Barrier 41\n")
        self.assertEqual(said.count("0 MPI calls are recorded: this Lockstep has no wrappers for"), 1, said)

    def test_another_mpiexec_is_another_run(self):
        self.hydra("head:4711")
        self.hydra("head:4712")
        runs = [p for p in pathlib.Path(self.path("lockstep.out")).iterdir() if p.is_dir() and not p.is_symlink()]
        self.assertEqual(len(runs), 2, runs)


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class Settings(Case):
    def test_ranks_that_differ_are_named(self):
        app = self.compiled(PROGRAM, "app")
        one = [jobs.LOCKSTEP, "run", "--after", "none", "-o", "run"]
        self.check([*jobs.MPIRUN, "-np", "1", *one, "--", app, ":", "-np", "2", *one, "--ring-size", "1MiB", "--", app])
        out, _ = self.analysis("run")
        self.assertIn("The ranks were recorded with different settings: --ring_size 1048576 (2 ranks, 1 first) and "
                      "8388608 (rank 0)", " ".join(out.split()))
        self.check([*jobs.MPIRUN, "-np", "2", *one[:-1], "same", "--", app])
        self.assertNotIn("different settings", self.analysis("same")[0])

    def test_where_the_run_is_without_rank_0(self):
        app = self.compiled(PROGRAM, "app")
        one = [jobs.LOCKSTEP, "run", "-o", "run", "--", app]
        _, said = self.check([*jobs.MPIRUN, "-np", "1", app, ":", "-np", "2", *one])
        self.assertEqual(re.findall("rank 0 has no file in run on .* If it ran without Lockstep: (.*?)\\.", said), ["lockstep analyze run"], said)
        self.assertEqual(self.analysis("run", 3)[1]["run"]["ranks_missing"], [0])

    def test_variables_travel_in_the_outer_form(self):
        app = self.compiled(PROGRAM, "app")
        self.check([jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", *jobs.MPIRUN, "-np", "1", "sh", "-c",
                    'test "$LOCKSTEP_WAS_SET" = "a b"', ":", "-np", "1", "sh", "-c", 'test "$LOCKSTEP_WAS_SET" = "a b"'],
                   env={"LOCKSTEP_WAS_SET": "a b"})
        self.assertTrue(app)

    def test_clock_agent_beside_mpi_falls_back(self):
        app = self.compiled(PROGRAM, "app")
        # Two clocks, so that --clock agent would start lockstep-clock.
        clocks = {"LOCKSTEP_TEST_CLOCK": "1:offset_s=1000,ppm=50"}
        _, said = self.check([*jobs.MPIRUN, "-np", "2", jobs.LOCKSTEP, "run", "--after", "none", "--clock", "agent", "-o",
                              "run", "--", app], env=clocks)
        self.assertEqual(said.count("--clock agent is for programs without MPI"), 1, said)
        self.assertIn("uses libmpi.so.40", said)
        self.assertEqual(len(jobs.Run(self.path("run")).files()), 2)

    def test_clock_agent_and_mpi_that_nobody_could_foresee(self):
        if jobs.run([jobs.PYTHON, "-c", "import mpi4py"], self.dir).returncode != 0:
            self.skipTest("no mpi4py")
        # One clock: lockstep-clock is not started, and nothing fails; the line comes before that is known.
        _, said = self.check([*jobs.MPIRUN, "-np", "2", jobs.LOCKSTEP, "run", "--after", "none", "--clock", "agent", "-o",
                              "run", "--", jobs.PYTHON, "-c", "from mpi4py import MPI; MPI.COMM_WORLD.allreduce(1)"])
        self.assertEqual(said.count("this one calls MPI_Init, which may fail now: leave --clock agent out"), 1, said)

    def test_each_rank_says_how_its_clock_was_measured(self):
        app = self.compiled(PROGRAM, "app")
        self.check([*jobs.MPIRUN, "-np", "2", jobs.LOCKSTEP, "run", "--after", "none", "-o", "run", "--", app])
        for rank, file in jobs.Run(self.path("run")).files().items():
            self.assertTrue(file.meta.get("clock_service"), rank)
            self.assertIn("clock=auto", file.meta["options"])

    def test_no_shared_directory_and_no_exchange_is_said(self):
        app = self.compiled(PROGRAM, "app")
        # Each slot in a directory of its own, and nothing asked of MPI.
        wrapper = pathlib.Path(self.path("wrapper.sh"))
        wrapper.write_text(f"""#!/bin/sh
mkdir -p node$OMPI_COMM_WORLD_RANK && cd node$OMPI_COMM_WORLD_RANK
exec '{jobs.LOCKSTEP}' run --clock tcp --after none -o run -- '{app}'
""")
        wrapper.chmod(0o755)
        self.check([*jobs.MPIRUN, "-np", "2", str(wrapper)], env={"LOCKSTEP_TEST_CLOCK": "1:offset_s=1000,ppm=50"})
        for file in pathlib.Path(self.path("node1/run/ranks")).glob("rank-*"):
            shutil.copy(file, self.path("node0/run/ranks"))
        clock = jobs.Run(self.path("node0/run")).files()["rank-00001.h5"].meta["clock_service"]
        # Twenty collectives of a microsecond say little about clocks: exit code 3 if they contradict each other.
        done = jobs.run([jobs.LOCKSTEP, "analyze", "node0/run"], self.dir)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        out = done.stdout.decode()
        said = " ".join(out.split())
        if "bounded by collectives alone" not in said:
            self.fail(f"{clock}\n{out}")
        self.assertIn("the run directory is not shared", said)


class Torchrun(Case):
    WORKER = """import ctypes, os
assert os.environ["WORLD_SIZE"] == "4"
ctypes.CDLL(None).lockstep_step()
os.write(1, b"rank %s\\n" % os.environ["RANK"].encode())
"""

    def setUp(self):
        super().setUp()
        if not shutil.which("torchrun"):
            self.skipTest("no torchrun")
        pathlib.Path(self.path("worker.py")).write_text(self.WORKER)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def nodes(self, directories):
        """Two nodes' torchrun under lockstep, each in its directory; gives what they said."""
        # -r and -t: the launcher of PyTorch 1.13 fails with Python 3.11 without them.
        words = ["torchrun", "--nnodes", "2", "--nproc_per_node", "2", "--master_addr", "127.0.0.1", "--master_port",
                 str(self.port), "-r", "1", "-t", "1", "--log_dir", self.path("logs"), self.path("worker.py")]
        started = []
        for node, directory in enumerate(directories):
            os.makedirs(self.path(directory), exist_ok=True)
            started.append(subprocess.Popen(
                [jobs.LOCKSTEP, "run", "--after-wait", "2", "--", words[0], "--node_rank", str(node), *words[1:]],
                cwd=self.path(directory), env=dict(jobs.ENVIRONMENT, OMP_NUM_THREADS="1"), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True))
        ended = [process.communicate(timeout=240) for process in started]
        for process, (out, err) in zip(started, ended):
            self.assertEqual(process.returncode, 0, err)
        return [out for out, _ in ended], [err for _, err in ended]

    def ranks(self, directory):
        latest = sorted(p for p in pathlib.Path(self.path(directory), "lockstep.out").iterdir()
                        if p.is_dir() and not p.is_symlink())
        self.assertEqual(len(latest), 1, latest)
        return latest[0], sorted(int(file.meta["rank"]) for file in jobs.Run(latest[0]).files().values())

    def test_one_directory(self):
        out, _ = self.nodes(["both", "both"])
        self.assertEqual(sorted("".join(out).replace("[default0]:", "").replace("[default1]:", "").split("\n"))[1:],
                         [f"rank {r}" for r in range(4)])
        self.assertEqual(self.ranks("both")[1], [0, 1, 2, 3])

    def test_a_directory_each(self):
        _, said = self.nodes(["a", "b"])
        first, ranks = self.ranks("a")
        second, others = self.ranks("b")
        self.assertEqual((ranks, others), ([0, 1], [2, 3]))
        self.assertIn("2 of 4 ranks recorded: nothing is there of ranks 2 and 3", " ".join(said[0].split()))
        self.assertIn(f"rank 0 has no file in {second.relative_to(self.path('b'))} on {socket.gethostname()}", said[1])
        # What it prints brings the files to rank 0's; on the host that is named no remote shell is needed.
        place = re.search(r"lockstep gather (\S+) -o RUN   then: lockstep analyze RUN", said[1])[1]
        self.assertEqual(jobs.run([jobs.LOCKSTEP, "gather", place, "-o", first], self.path("a")).returncode, 0)
        _, analysis = self.analysis(first, 3)
        self.assertEqual((analysis["run"]["ranks"], analysis["run"]["ranks_missing"]), (4, []))


if __name__ == "__main__":
    case = globals()[sys.argv[2]]
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(case)))
