"""What the GPU checks share: starting ranks that share a GPU, and reading what came of it."""

import collections
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import machine
import rank_csv

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# Of the user's own variables: where things are, and limits. What is recorded, and when, is for each check to say.
PASSED_ON = ("LOCKSTEP_CUPTI", "LOCKSTEP_NVML", "LOCKSTEP_GPU_BUFFERS", "LOCKSTEP_RING_SIZE", "LOCKSTEP_RING_TOTAL",
             "LOCKSTEP_MAX_BYTES", "LOCKSTEP_SPOOL_DIR", "LOCKSTEP_CLOCK", "LOCKSTEP_AFTER_WAIT")
# A launcher's variables must not reach the ranks, which are told who they are.
FOREIGN = ("LOCKSTEP_", "OMPI_", "PMIX_", "SLURM_", "NCCL_", "TORCH", "MASTER_")


def passed_on():
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


LACKING = 77  # Exit code of our jobs where the machine misses something.


class Failed(Exception):
    """A check's expectation does not hold; the text says what was found."""


class Skipped(Exception):
    """A check needs what this machine lacks."""


@dataclasses.dataclass
class Job:
    codes: list  # Per rank.
    out: list
    err: list
    seconds: float
    run: object = None  # If it was traced.

    def text(self):
        return "\n".join(self.out)


# Several ranks on one GPU, for tests only: NCCL refuses it unless each process claims to be a host of its own
# (NCCL 2.27 to 2.30 compare host and PCI bus; 2.30 has a switch), which leaves the network as transport.
def sharing_environment(rank):
    return {"NCCL_HOSTID": f"lockstep-rank{rank}", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NET": "Socket",
            "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
            "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_NCHANNELS": "2", "NCCL_CUMEM_ENABLE": "0"}


class Run:
    """A run directory."""

    def __init__(self, directory, ctx):
        self.directory, self.ctx = directory.resolve(), ctx

    def analyze(self, *options):
        """(exit code, the JSON or None, stderr)"""
        done = subprocess.run([self.ctx.lockstep, "analyze", *options, "--json", "-", str(self.directory)], cwd="/",
                              capture_output=True, text=True, errors="replace", env=self.ctx.environment, timeout=120)
        try:
            analysis = json.loads(done.stdout)
        except ValueError:
            analysis = None
        return done.returncode, analysis, done.stderr


class Context:
    def __init__(self, build, python, fake, ranks, pairs, keep=None, seconds=None, gpus=1):
        self.build, self.python, self.fake, self.ranks = pathlib.Path(build).resolve(), python, fake, ranks
        self.pairs, self.seconds, self.gpu_count = pairs, seconds, gpus
        self.began = time.monotonic()
        self.lockstep = str(self.build / "lockstep")
        self.kept = keep is not None
        if self.kept:
            self.dir = pathlib.Path(keep).resolve()
            self.dir.mkdir(parents=True, exist_ok=True)
        else:
            self.dir = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-gpu-"))
        self.jobs = 0
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(FOREIGN) and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OUT")}
        self.environment.update(passed_on())
        self.environment["NCCL_CONF_FILE"] = "/dev/null"
        self.native = {}
        if fake:
            self.environment["LOCKSTEP_NVML"] = str(self.build / "tests/libfake_nvml.so")
        else:
            self.native = machine.native_environment(python, self.environment)

    def clean(self):
        if not self.kept:
            shutil.rmtree(self.dir, ignore_errors=True)

    def left(self):
        """Seconds until this check must have ended."""
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self.began)

    def measured(self, **values):
        """A line that is kept whatever happens next."""
        print(json.dumps({"measured": values}), flush=True)

    # --- programs ---

    def training(self, steps, *options):
        """The native training job. Options it does not have in its fake form are left out there."""
        if not self.fake:
            program = self.build / "ddp_nccl"
            if not program.exists():
                raise Skipped(f"{program} is not built: nvcc and NCCL were not there")
            return [str(program), "--steps", str(steps), *options]
        kept = []
        for name, value in zip(options, [*options[1:], ""]):
            if name == "--end":
                kept += [name, value]
        self.jobs += 1
        return [str(self.build / "tests/e2e_gpu_job"), str(self.dir / f"shared{self.jobs}"), "--steps", str(steps), *kept]

    def kernels(self, what, *options):
        """Kernels of known length (kernels.cc)."""
        program = self.build / "tests/gpu_kernels"
        if not program.exists():
            raise Skipped(f"{program} is not built")
        return [str(program), what, *options, *(["--fake", self.cupti()] if self.fake else [])]

    def cupti(self):
        """A libcupti for programs that are not under Lockstep, None: there is none."""
        return (str(self.build / "tests/fakes/libcupti.so.13") if self.fake
                else machine.cupti(self.python, {**self.environment, **self.native}))

    def script(self, script, *options):
        """A job in Python on the GPU. It ends with 77 and a line of why where it misses something."""
        if self.fake:
            raise Skipped("needs a real GPU")
        return [self.python, str(script), *options]

    def torch(self, script, *options):
        words = self.script(script, *options)
        if why := machine.torch_lacks(self.python):
            raise Skipped(f"{self.python}: {why}")
        return words

    # --- running ---

    def start(self, words, ranks=1, env=None, options=(), bare=False, raw=False):
        """[Popen], the directory. Ranks find each other as torchrun's do. raw: CUPTI's buffers are kept as they came."""
        self.jobs += 1
        place = self.dir / f"job{self.jobs}"
        place.mkdir()
        if raw:
            (place / "raw").mkdir()
            env = {**(env or {}), "LOCKSTEP_GPU_RAW_DIR": str(place / "raw")}
        port = str(20000 + (os.getpid() * 37 + self.jobs * 11) % 20000)
        started = []
        sharing = ranks > self.gpu_count
        native = {} if str(words[0]) == self.python else self.native
        for rank in range(ranks):
            full = {**self.environment, **native, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                    **(sharing_environment(rank) if sharing else {}), **(env or {})}
            if sharing:
                full["LOCAL_RANK"] = "0"  # Scripts take device LOCAL_RANK.
            agent = [] if bare else [self.lockstep, "run", "--after", "none", *options, "--"]
            out, err = open(place / f"out{rank}", "w"), open(place / f"err{rank}", "w")
            started.append(subprocess.Popen([*agent, *map(str, words)], cwd=place, env=full, stdout=out, stderr=err))
            out.close()
            err.close()
        return started, place

    def finish(self, started, place, timeout=120, traced=True):
        begin, late = time.monotonic(), False
        for process in started:
            try:
                process.wait(max(1, timeout - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                late = True
                kill_with_children(process.pid)
                process.wait()
        texts = [[(place / f"{name}{rank}").read_text(errors="replace") for rank in range(len(started))]
                 for name in ("out", "err")]
        job = Job([process.returncode for process in started], *texts, time.monotonic() - begin)
        if traced:
            found = sorted(place.glob("lockstep.out/2*"))
            job.run = Run(found[-1], self) if found else None
        if late:
            raise Failed(f"not finished after {timeout:.0f} s; stderr of rank 0 ends: {job.err[0][-400:]}")
        return job

    def launch(self, words, ranks=1, env=None, options=(), bare=False, timeout=120, codes=(0,), raw=False):
        timeout = max(1, min(timeout, self.left() - 3))
        job = self.finish(*self.start(words, ranks, env, options, bare, raw), timeout, not bare)
        if LACKING in job.codes and LACKING not in codes:
            raise Skipped((" ".join(job.err).strip().splitlines() or ["the job lacks something"])[-1])
        if any(code not in codes for code in job.codes):
            raise Failed(f"exit codes {job.codes}; stderr: {' '.join(job.err)[-600:]}")
        if not bare and job.run is None:
            raise Failed(f"no run directory; stderr: {job.err[0][-400:]}")
        return job

    def summary(self, job):
        """What is in the first rank's file, however much that is: ({table: rows}, losses, meta)."""
        rank = min(job.run.directory.glob("ranks/*.h5"), default=None)
        if rank is None:
            raise Failed(f"no rank's file in {job.run.directory}; stderr: {job.err[0][-300:]}")
        done = subprocess.run([self.lockstep, "info", "--json", "-", str(rank)], capture_output=True, text=True,
                              errors="replace", env=self.environment, timeout=60)
        if done.returncode not in (0, 3):
            raise Failed(f"lockstep info failed with {done.returncode}: {done.stderr[-300:]}")
        facts = json.loads(done.stdout)
        facts = facts.get("files", [facts])[0]
        losses = collections.Counter()
        for loss in facts["losses"]:
            losses[loss["name"]] += loss["count"]
        return {name: table["rows"] for name, table in facts["tables"].items()}, dict(losses), facts["meta"]

    def files(self, job):
        """Ranks; of a job that ended badly those made from what it left."""
        found, said = rank_csv.read(self.lockstep, job.run.directory, self.environment)
        if not found:
            raise Failed(f"no rank can be read: {said}")
        return found


# NCCL INFO AllReduce: opCount 1 sendbuff 0x.. recvbuff 0x.. count 4096 datatype 7 op 0 root 0 comm 0x.. [nranks=2] stream 0x..
CALL = re.compile(r"NCCL INFO (\w+): opCount \w+ .*? count (\d+) datatype (\d+) ")


def nccl_calls(directory):
    """Per process id: function -> calls, as NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL logged them."""
    found = {}
    for path in pathlib.Path(directory).glob("nccl.*"):
        calls = collections.Counter(match[1] for match in CALL.finditer(path.read_text(errors="replace"))
                                    if int(match[2]) > 0)
        found[int(path.suffix[1:])] = calls
    return found


KINDS = {}


def kind_names():
    """Number of a CollectiveKind -> NCCL's name of the function."""
    if not KINDS:
        text = (SOURCE / "core/collective.h").read_text()
        body = text[text.index("enum class CollectiveKind"):]
        for name, number in re.findall(r"k(\w+) = (\d+)", body[:body.index("};")]):
            KINDS[int(number)] = name
    return KINDS


SAME = {"AllToAll": "AlltoAll"}


def recorded_calls(file):
    """Function -> operations in a rank file, communicators of NCCL only."""
    kinds = kind_names()
    nccl = {c for c, kind in zip(file.numbers("comms", "comm"), file.numbers("comms", "kind")) if kind == 3}
    found = collections.Counter()
    for comm, kind in zip(file.numbers("collectives", "comm"), file.numbers("collectives", "kind")):
        if comm in nccl:
            name = kinds.get(kind, str(kind))
            found[SAME.get(name, name)] += 1
    for comm, direction in zip(file.numbers("p2p", "comm"), file.numbers("p2p", "direction")):
        if comm in nccl:
            found["Recv" if direction else "Send"] += 1
    return found


def said(job):
    """The line of JSON with which a job of one rank ends."""
    try:
        return json.loads(job.text().strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Failed(f"the job's last line is no JSON: {job.text()[-300:]}") from None


def milliseconds_per_step(job):
    match = re.search(r"([\d.]+) ms each", job.text())
    if match is None:
        raise Failed(f"the job printed no step time: {job.text()[-200:]}")
    return float(match[1])


def kill_with_children(pid):
    """An agent that is killed leaves its program running, and the GPU busy."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if parent == pid:
            kill_with_children(int(stat.parent.name))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
