#!/usr/bin/python3
"""Checks of other folders with another MPI than the one that the build found.

  mpis.py BUILD_DIR MPI CHECK [ARGUMENTS]

MPI    mpich: Debian's (mpicxx.mpich, mpiexec.mpich). A directory: bin/mpicxx and bin/mpiexec below it (an installed
       release, an unpacked wheel). With ":abi" behind it: programs of the standard's ABI (bin/mpicxx_abi)
       With "@DIRECTORY" at the end, programs are made by the compiler of that one, which has the same ABI (Intel MPI's
       runtime has none)
CHECK  counted or counted_large RANKS ROUNDS SEED THREADS | zero_counts | clock CASE | ddp CASE | newer CASE |
       a case of mpi_rest
"""
import os
import pathlib
import shutil
import subprocess
import sys

BUILD, MPI, CHECK = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
E2E = pathlib.Path(__file__).resolve().parents[1]
ROOT = E2E.parents[1]
SOURCES = {"counted": ["tests/e2e/counted/counted.cc"], "counted_large": ["tests/e2e/mpis/counted_large.cc"],
           "zero_counts": ["tests/e2e/mpi_rest/zero_counts.cc"],
           "newer": ["tests/e2e/mpis/newer.cc"], "mpi_rest": ["tests/e2e/mpi_rest/mpi_rest.cc"], "clock_app": ["tests/truth/clock_app.cc"],
           "ddp_mpi": ["examples/ddp_mpi/*.cc", "examples/common/*.cc"]}
# Check -> script, program, arguments before the check's own.
CHECKS = {"counted": ("tests/e2e/counted/check.py", "counted", []),
          "zero_counts": ("tests/e2e/mpi_rest/check_zero_counts.py", "zero_counts", []),
          "newer": ("tests/e2e/mpis/newer.py", "newer", []),
          "clock": ("tests/truth/clock_truth.py", "clock_app", []),
          "ddp": ("tests/e2e/ddp/ddp_test.py", "ddp_mpi", ["-v"])}


def skip(why):
    print("SKIPPED: " + why)
    sys.exit(77)


PLACE, _, MADE_BY = MPI.partition("@")
PLACE, _, ABI = PLACE.partition(":")


def tool(prefix, name):
    path = name + ".mpich" if prefix == "mpich" else os.path.join(prefix, "bin", name)
    return shutil.which(path) or skip("no " + path)


mpicxx, mpiexec = tool(MADE_BY or PLACE, "mpicxx_abi" if ABI else "mpicxx"), tool(PLACE, "mpiexec")
said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout
open_mpi = "Open MPI" in said
programs = BUILD / "tests" / "mpis" / (MADE_BY + ":" * bool(ABI) + ABI if MADE_BY else MPI).strip("/").replace("/", "_").replace(":", "_")
programs.mkdir(parents=True, exist_ok=True)
script, name, words = CHECKS.get(CHECK, ("tests/e2e/mpi_rest/check.py", "mpi_rest", [CHECK]))
if CHECK == "counted_large":
    script, name, words = CHECKS["counted"]
    programs = programs / "large"
    programs.mkdir(exist_ok=True)
sources = [source for pattern in SOURCES[CHECK if CHECK in SOURCES else name] for source in sorted(ROOT.glob(pattern))]
program = programs / name
if not program.exists() or program.stat().st_mtime < max(s.stat().st_mtime for s in sources):
    made = program.with_suffix(f".{os.getpid()}")
    subprocess.run([mpicxx, "-std=c++20", "-O1", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-I", str(ROOT),
                    *map(str, sources), "-o", str(made), "-pthread"], check=True)
    made.rename(program)

as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
launch = [mpiexec, *as_root, "--oversubscribe"] if open_mpi else [mpiexec, "-genv", "LOCKSTEP_MPICH_UCX", "1"]  # Debian's MPICH is recorded on request only.
env = dict(os.environ, LOCKSTEP_TEST_MPIEXEC=" ".join(launch), LOCKSTEP_TEST_PROGRAMS=str(programs))
env["LOCKSTEP_TEST_MPIFORT"] = mpicxx.replace("mpicxx", "mpifort")
if MPI != "mpich":
    env["LD_LIBRARY_PATH"] = os.path.join(PLACE, "lib")
if not open_mpi:
    env["LOCKSTEP_TEST_NO_PMIX"] = "1"
sys.exit(subprocess.run([sys.executable, str(ROOT / script), str(BUILD), *words, *sys.argv[4:]], env=env).returncode)
