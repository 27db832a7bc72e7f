"""What the whole-program tests share: running a job bare and under Lockstep, and
reading what came of it. Import after sys.argv[1] is the build directory."""

import collections
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mpi_sessions  # noqa: E402
import rank_tables  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
LOCKSTEP = str(BUILD / "lockstep")
PYTHON = "/usr/bin/python3"
# The launcher's own variables must not reach the jobs of a test that itself runs in one.
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_", "SLURM_")) and k not in ("RANK", "WORLD_SIZE")}
ENVIRONMENT.update(mpi_sessions.ENVIRONMENT)
# torchrun looks for workers that have ended every 5 s in PyTorch 1.13, so that each launch takes that long, and every
# 0.1 s since 2.3. It reads its options' defaults from PET_ variables.
ENVIRONMENT["PET_MONITOR_INTERVAL"] = "0.1"
ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []
# Another MPI's launcher and programs (tests/e2e/mpis).
MPIRUN = os.environ.get("LOCKSTEP_TEST_MPIEXEC", " ".join(["mpirun", *ROOT, "--oversubscribe"])).split()
PROGRAMS = pathlib.Path(os.environ.get("LOCKSTEP_TEST_PROGRAMS", BUILD))


def mpi_ops():
    """MPI function name -> its number on disk."""
    names = {}
    for line in (SOURCE / "core/mpi_ops.def").read_text().splitlines():
        if line.startswith("LS_MPI_OP("):
            number, name = line[len("LS_MPI_OP("):].split(",")[:2]
            names["MPI_" + name.strip()] = int(number)
    return names


def run(words, cwd, env=None, timeout=120, **more):
    """subprocess.run with captured bytes and the wall time in .seconds."""
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=dict(ENVIRONMENT, **(env or {})),
                          timeout=timeout, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})
    done.seconds = time.monotonic() - begin
    return done


def on_this_machine(seconds):
    """What may take this long on an idle machine, now: others want its cores too."""
    return seconds * (1 + os.getloadavg()[0] / os.cpu_count())


def wait_until(what, seconds=120):
    """Whether what() came true within a time that is long on any machine."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def children(pid):
    return [int(each) for each in pathlib.Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()]


def agent_of(process):
    """The process that was started waits for the agent, its first child."""
    return children(process.pid)[0]


def program_of(process):
    return children(agent_of(process))[0]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def gone(pid):
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def steady(report):
    """Whether ddp_mpi had the cores it needed. Steps of timed work last equally long where it had: else figures of
    single ranks are the machine's."""
    return report["step_ms"] * 1e6 <= 1.025 * min(report["step_ns"][report["warmup_steps"]:])


def leave(result):
    """Ends a test program: 77, which ctest shows as skipped, if nothing but skipping was done."""
    if result.testsRun and len(result.skipped) == result.testsRun and result.wasSuccessful():
        print(result.skipped[0][1])
        sys.exit(77)
    sys.exit(not result.wasSuccessful())


def without_ours(stderr):
    """stderr less the lines Lockstep says itself: one voice, one prefix."""
    return b"".join(line for line in stderr.splitlines(keepends=True) if not line.startswith(b"lockstep: "))


class RankFile:
    """One rank file, strings resolved."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        with rank_tables.open_file(path) as file:
            self.tables = {name: {column: data[:] for column, data in group.items()} for name, group in file.items()
                           if not isinstance(group, h5py.Dataset)}
            self.attributes = dict(file.attrs)
        data = bytes(self.tables["string_bytes"]["value"])
        strings = self.tables["strings"]
        self.texts = [data[at:at + size].decode("utf-8", "surrogateescape")
                      for at, size in zip(strings["offset_bytes"], strings["length_bytes"])]
        meta = self.tables["meta"]
        self.meta = {self.text(key): self.text(value) for key, value in zip(meta["key"], meta["value"])}

    def text(self, index):
        return self.texts[index] if index < len(self.texts) else None

    def column(self, table, name):
        return self.tables[table][name]

    def rows(self, table):
        columns = self.tables[table]
        return len(next(iter(columns.values())))

    @property
    def losses(self):
        found = collections.Counter()
        for name, count in zip(self.column("losses", "name"), self.column("losses", "count")):
            found[self.text(name)] += int(count)
        return dict(found)

    @property
    def ranges(self):
        """Name -> how often."""
        return dict(collections.Counter(self.text(name) for name in self.column("ranges", "name")))

    @property
    def calls(self):
        """MPI function -> how often."""
        by_number = {number: name for name, number in mpi_ops().items()}
        found = collections.Counter()
        for op, count in zip(self.column("mpi_calls", "op"), self.column("mpi_calls", "count")):
            found[by_number[int(op)]] += int(count)
        return dict(found)

    @property
    def executables(self):
        return [os.path.basename(self.text(exe)) for exe in self.column("processes", "exe")]


class Run:
    """A run directory."""

    def __init__(self, directory):
        self.directory = pathlib.Path(os.path.realpath(directory))

    def files(self):
        """File name -> RankFile, in the order of names."""
        return {os.path.basename(path): RankFile(path) for path in sorted(glob.glob(f"{self.directory}/ranks/*.h5"))}

    def spools(self):
        return sorted(glob.glob(f"{self.directory}/ranks/*.spool") + glob.glob(f"{self.directory}/ranks/*.ring"))

    def analyze(self, *options):
        """(exit code, analysis or None, stderr)"""
        done = run([LOCKSTEP, "analyze", *options, "--json", "-", self.directory], cwd="/")
        try:
            analysis = json.loads(done.stdout)
        except ValueError:
            analysis = None
        return done.returncode, analysis, done.stderr.decode()


def newest(output):
    """The newest run in this lockstep.out. One that recorded nothing is not what `latest` points to, and names of one
    second are in no order."""
    runs = [path for path in pathlib.Path(output).glob("*-*") if (path / "ranks").is_dir()]
    return max(runs, key=lambda path: (path / "ranks").stat().st_mtime_ns, default=pathlib.Path(output) / "latest")


def latest(directory):
    return Run(newest(pathlib.Path(directory) / "lockstep.out"))


def segments():
    return set(glob.glob("/dev/shm/lockstep-*"))


def have(*programs):
    return all(os.path.exists(program) or shutil.which(program) for program in programs)
