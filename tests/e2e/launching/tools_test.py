"""Jobs that another MPI tool is in: its output is the same with Lockstep, and what is not recorded is a loss.

usage: tools_test.py BUILD_DIR Class

Behind    a tool that is linked, preloaded, inside of the program, or loaded by Python: both record
Past      an MPI library or wrappers that Lockstep cannot be reached from: said, and exit code 3
"""
import json
import os
import pathlib
import shutil
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

APP = """#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 30; ++i) MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) MPI_Send(&sum, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
  if (rank == 1) MPI_Recv(&sum, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return MPI_Finalize();
}
"""
# Counts calls by where they come from, as mpiP does, in a file of its own. MPI_Recv and MPI_Init are not wrapped. Its
# last calls are jumps, as compilers make them: the library's functions return to the program.
TOOL = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
static int reduced, sent;
static char from[1000];
static void come_from(void *place) {
  Dl_info info;
  const char *name = dladdr(place, &info) ? strrchr(info.dli_fname, '/') : 0;
  strcpy(from, name ? name + 1 : "?");
}
int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  come_from(__builtin_return_address(0));
  ++reduced;
  return PMPI_Allreduce(in, out, n, type, op, comm);
}
int MPI_Send(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  ++sent;
  return PMPI_Send(data, n, type, to, tag, comm);
}
int MPI_Finalize(void) {
  char name[20];
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  sprintf(name, "tool.%d", rank);
  FILE *file = fopen(name, "w");
  fprintf(file, "%d all-reduces of %s, %d sends", reduced, from, sent);
  fclose(file);
  return PMPI_Finalize();
}
"""
# Finds the library's functions itself.
BY_NAME = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int (*next)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm) = dlsym(RTLD_NEXT, "MPI_Allreduce");
  return next(in, out, n, type, op, comm);
}
"""
# Takes the place of MPI in programs of one process (MUMPS's libmpiseq).
STAND_IN = """int MPI_Init(int *argc, char ***argv) { return 0; }
int MPI_Barrier(int comm) { return 0; }
int MPI_Finalize(void) { return 0; }
"""
OF_STAND_IN = """int MPI_Init(int *, char ***), MPI_Barrier(int), MPI_Finalize(void);
int main(int argc, char **argv) { return 10 * MPI_Init(&argc, &argv) + MPI_Barrier(0) + MPI_Finalize(); }
"""
PYTHON = """from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
for i in range(30):
    MPI.COMM_WORLD.Allreduce([bytearray(4), MPI.INT], [bytearray(4), MPI.INT])
if rank == 0:
    MPI.COMM_WORLD.Send([bytearray(4), MPI.INT], 1)
elif rank == 1:
    MPI.COMM_WORLD.Recv([bytearray(4), MPI.INT], 0)
"""
BY_DLSYM = """import ctypes
mpi = ctypes.CDLL("libmpi.so.40")
mpi.MPI_Init(None, None)
mpi.MPI_Barrier(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world"))))
mpi.MPI_Finalize()
"""
# An MPI library of one file.
MPI_INSIDE = """int PMPI_Init(int *argc, char ***argv) { return 0; }
int MPI_Init(int *argc, char ***argv) { return PMPI_Init(argc, argv); }
int main(int argc, char **argv) { return MPI_Init(&argc, &argv); }
"""


class Case(unittest.TestCase):
    def setUp(self):
        if not shutil.which("mpicc") or not os.path.exists(f"{jobs.BUILD}/liblockstep-mpi-ompi40.so"):
            self.skipTest("no Open MPI")
        self.dir = tempfile.mkdtemp(prefix="lockstep-e2e-")
        self.path("app.c").write_text(APP)

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return pathlib.Path(self.dir, name)

    def compiled(self, output, text, *words, compiler="mpicc"):
        self.path(output + ".c").write_text(text)
        subprocess.run([compiler, "-O2", "-o", output, output + ".c", *words], cwd=self.dir, check=True)

    def tool(self, text=TOOL):
        self.compiled("libtool.so", text, "-shared", "-fPIC")

    def job(self, words, env=None, code=0, ranks=2):
        """What it says under Lockstep, and its run."""
        launcher = [*jobs.MPIRUN, "-np", str(ranks)] if ranks else []
        preload = [word for name, value in (env or {}).items() for word in ("-x", f"{name}={value}")]
        for lockstep in ([], [jobs.LOCKSTEP, "run"]):
            done = jobs.run([*launcher, *preload, *lockstep, *(["--"] if lockstep else []), *words], self.dir)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            wrote = {path.name: path.read_text() for path in self.path("").glob("tool.*")}
            if lockstep:
                self.assertEqual(wrote, bare)
            bare = wrote
        run = jobs.latest(self.dir)
        self.assertEqual(run.analyze()[0], code)
        return done.stdout.decode() + done.stderr.decode(), run, bare

    def finding(self, name, *words, env=None):
        done = jobs.run([jobs.LOCKSTEP, "doctor", "--json", "-", *words], self.dir, env)
        return next(check for check in json.loads(done.stdout)["checks"] if check["name"] == name)


class Behind(Case):
    OUTPUT = ["30 all-reduces of app, 0 sends", "30 all-reduces of app, 1 sends"]

    def both_record(self, words, env=None):
        """The tool does, or would not without Lockstep either."""
        _, run, wrote = self.job(words, env)
        recorded = [file.calls for file in run.files().values()]
        counts = [sum(calls.get("MPI_" + name, 0) for calls in recorded)
                  for name in ("Init", "Init_thread", "Allreduce", "Send", "Recv", "Finalize")]
        self.assertIn(counts, ([2, 0, 60, 1, 1, 2], [0, 2, 60, 1, 1, 2]))
        return sorted(wrote.values())

    def test_linked(self):
        self.tool()
        self.compiled("app", APP, "-L.", "-ltool", "-Wl,-rpath,$ORIGIN")
        self.assertEqual(self.both_record(["./app"]), self.OUTPUT)
        self.assertIn("/libtool.so", self.finding("mpi_tools", "--program", "./app")["text"])

    def test_one_that_comes_behind_the_mpi_library(self):
        self.tool()
        self.compiled("libmiddle.so", "int middle(void) { return 0; }", "-shared", "-fPIC", "-L.", "-Wl,--no-as-needed",
                      "-ltool", f"-Wl,-rpath,{self.dir}")
        self.compiled("app", APP, "-L.", "-Wl,--no-as-needed", "-lmiddle", "-Wl,-rpath,$ORIGIN")
        self.assertEqual(self.both_record(["./app"]), [])
        self.assertNotIn("/libtool.so", self.finding("mpi_tools", "--program", "./app")["text"])

    def test_inside(self):
        self.path("tool.c").write_text(TOOL)
        self.compiled("app", APP, "tool.c")
        self.path("tool.c").unlink()
        self.assertEqual(self.both_record(["./app"]), self.OUTPUT)
        finding = self.finding("mpi_tools", "--program", "./app")
        self.assertEqual((finding["status"], finding["text"][-6:]), ("ok", " ./app"))

    def test_preloaded(self):
        self.tool()
        self.compiled("app", APP)
        preload = {"LD_PRELOAD": f"{self.dir}/libtool.so"}
        self.assertEqual(self.both_record(["./app"], preload), self.OUTPUT)
        self.assertIn("/libtool.so", self.finding("mpi_tools", env=preload)["text"])
        self.assertNotIn("/libtool.so", self.finding("mpi_tools", "--program", "./app")["text"])

    def test_of_python(self):
        if subprocess.run([jobs.PYTHON, "-c", "import mpi4py"]).returncode != 0:
            self.skipTest("no mpi4py")
        self.tool()
        self.path("job.py").write_text(PYTHON)
        wrote = self.both_record([jobs.PYTHON, "job.py"], {"LD_PRELOAD": f"{self.dir}/libtool.so"})
        self.assertRegex(" ".join(wrote), r"^30 all-reduces of MPI\..*, 0 sends 30 all-reduces of MPI\..*, 1 sends$")


class Past(Case):
    def test_tools_that_call_no_pmpi_function(self):
        self.tool(BY_NAME)
        self.compiled("app", APP, "-L.", "-ltool", "-Wl,-rpath,$ORIGIN", "-ldl")
        said, run, _ = self.job(["./app"], code=3)
        self.assertEqual(said.count("not all MPI calls are recorded: "), 1, said)
        self.assertIn("libtool.so has wrappers that call no PMPI_ function", said)

    def test_by_addresses(self):
        self.path("job.py").write_text(BY_DLSYM)
        said, run, _ = self.job([jobs.PYTHON, "job.py"], code=3)
        self.assertEqual(said.count("0 MPI calls are recorded: "), 1, said)
        self.assertEqual({file.losses.get("BackendNotCaptured") for file in run.files().values()}, {1})

    def refused(self, word):
        said, run, _ = self.job(["./app"], code=3, ranks=0)
        self.assertEqual(said.count("MPI is not recorded: "), 1, said)
        self.assertIn(word, said)
        self.assertEqual([file.losses for file in run.files().values()], [{"BackendNotCaptured": 1}])
        finding = self.finding("program", "--program", "./app")
        self.assertEqual(finding["status"], "blocker")
        self.assertIn(word, finding["text"])

    def test_a_library_inside(self):
        self.compiled("app", MPI_INSIDE, compiler="gcc")
        self.refused("an MPI library linked into it")

    def test_hidden_wrappers(self):
        self.path("tool.c").write_text('#pragma GCC visibility push(hidden)\nint MPI_Bsend_init(void) { return 0; }\n')
        self.compiled("app", APP.replace("rank == 1", "rank == 1 && 0").replace("rank == 0", "rank == 7"), "tool.c")
        self.refused("it hides (MPI_Bsend_init)")

    def test_what_stands_in_for_mpi_is_called(self):
        self.compiled("libtool.so", STAND_IN, "-shared", "-fPIC", compiler="gcc")
        self.compiled("app", OF_STAND_IN, "-L.", "-ltool", "-Wl,-rpath,$ORIGIN", compiler="gcc")
        _, run, _ = self.job(["./app"], code=3, ranks=0)  # A run of no events.
        self.assertEqual([file.losses for file in run.files().values()], [{}])


if __name__ == "__main__":
    case = globals()[sys.argv[2]]
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(case)))
