"""GPU capture end to end on the tests' GPU and NCCL: check.py BUILD_DIR REAL_CUPTI CASE"""
import json
import pathlib
import shutil
import signal
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

TESTS = jobs.BUILD / "tests"
JOB, JOB_MPI, INJECT = TESTS / "e2e_gpu_job", TESTS / "e2e_gpu_job_mpi", TESTS / "e2e_gpu_inject"
REAL_CUPTI = sys.argv[2]
NVML = TESTS / "libfake_nvml.so"
GPU = jobs.BUILD / "liblockstep-gpu.so"
if not jobs.have(str(JOB), str(GPU), jobs.LOCKSTEP):
    print("skipped: not built")
    sys.exit(77)

NONE = 0xffffffff
LAYERS = 4
# Per step: reductions of layers, and two grouped ones in one kernel.
COLLECTIVES, NCCL_KERNELS, COMPUTE_KERNELS = LAYERS + 2, LAYERS + 1, 2 * LAYERS + 1
ENVIRONMENT = {"LOCKSTEP_NVML": str(NVML), "NCCL_CONF_FILE": "/dev/null"}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-e2e-gpu-")
        self.jobs = 0

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def job(self, *options, program=JOB):
        self.jobs += 1
        return [program, f"{self.dir}/shared{self.jobs}", *options]

    def alone(self, *options):
        """One process, whose communicator has a second rank that never answers."""
        return self.job("--claim", "2", *options)

    def ranks(self, count, words, env=None, bare=False, run=(), after="none"):
        """mpirun -np COUNT lockstep run -- WORDS"""
        lockstep = [] if bare else [jobs.LOCKSTEP, "run", "--after", after, *run, "--"]
        return jobs.run([*jobs.MPIRUN, "-np", str(count), *lockstep, *words], self.dir, {**ENVIRONMENT, **(env or {})})

    def one(self, words, env=None, run=(), **more):
        return jobs.run([jobs.LOCKSTEP, "run", "--after", "none", *run, "--", *words], self.dir,
                        {**ENVIRONMENT, **(env or {})}, **more)

    def run_dir(self):
        return jobs.latest(self.dir)

    def files(self):
        files = self.run_dir().files()
        self.assertTrue(files)
        return list(files.values())

    def recovered(self):
        run = self.run_dir()
        jobs.run([jobs.LOCKSTEP, "merge", run.directory], "/")
        return list(run.files().values())

    def sound(self, analysis):
        trust = analysis["trust"]
        self.assertEqual((trust["unmatched_collectives"], trust["mismatched_collectives"], trust["dropped"]), (0, 0, 0))

    def kernels(self, file):
        return [file.text(name) for name in file.column("kernels", "name")]

    def whole(self, file, steps, extra=0):
        """Every kernel and collective of `steps` steps is there once, and tied."""
        names = self.kernels(file)
        nccl = [i for i, name in enumerate(names) if name.startswith("nccl")]
        self.assertEqual(len(nccl), NCCL_KERNELS * steps + extra)
        self.assertEqual(len(names) - len(nccl), COMPUTE_KERNELS * steps)
        self.assertEqual(file.rows("collectives"), COLLECTIVES * steps)
        kernel, shared = file.column("collectives", "kernel"), file.column("collectives", "kernel_operations")
        self.assertEqual(sum(kernel == NONE), 0)
        self.assertEqual(set(int(k) for k in kernel), set(nccl))
        self.assertEqual(sorted(set(int(n) for n in shared)), [1, 2])
        self.assertEqual(int(sum(shared == 2)), 2 * steps)
        # A kernel of NCCL is one because an operation launched it, not by its name.
        work, rule = file.column("kernels", "work"), file.column("kernels", "work_rule")
        self.assertEqual({(int(work[i]), int(rule[i])) for i in nccl}, {(1, 1)})
        begin, length = file.column("kernels", "begin_ns"), file.column("kernels", "duration_ns")
        for row, k in enumerate(kernel):
            self.assertEqual(file.column("collectives", "begin_ns")[row], begin[k])
            self.assertEqual(file.column("collectives", "end_ns")[row], begin[k] + length[k])


class Chain(Case):
    def test_from_mpirun_to_the_analysis(self):
        # Long enough for CUPTI to tell which device it is, half a second after the start.
        steps = 200
        bare, traced = (self.ranks(3, self.job("--steps", str(steps)), bare=bare) for bare in (True, False))
        self.assertEqual((bare.returncode, traced.returncode), (0, 0), bare.stderr + traced.stderr)
        self.assertEqual(sorted(traced.stdout.splitlines()), sorted(bare.stdout.splitlines()))
        self.assertIn(b"violations 0", traced.stdout)
        files = self.files()
        self.assertEqual(len(files), 3)
        for rank, file in enumerate(files):
            self.whole(file, steps)
            self.assertEqual(file.meta["exit_code"], "0")
            self.assertNotIn("GpuTailLost", file.losses)
            self.assertEqual({k: v for k, v in file.losses.items() if k.startswith(("Gpu", "Nccl", "Unknown"))}, {})
            self.assertEqual([int(kind) for kind in file.column("comms", "kind")].count(3), 1)
            self.assertEqual(file.rows("devices"), 1)
            # Samples of the GPU this rank used, by its UUID (first byte a0: 1160 MHz at first).
            self.assertGreater(file.rows("gpu_samples"), 0)
            self.assertEqual({int(d) for d in file.column("gpu_samples", "device")}, {0})
            self.assertEqual(int(file.column("gpu_samples", "sm_clock_mhz")[0]), 1160)
            self.assertEqual({int(v) for v in file.column("gpu_samples", "throttle_reasons")}, {4})
        code, analysis, stderr = self.run_dir().analyze()
        self.sound(analysis)
        self.assertEqual(sum(g["count"] for g in analysis["collectives"]), COLLECTIVES * steps)
        for rank in analysis["ranks"]:
            terms = ("compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns",
                     "idle_ns")
            self.assertEqual(sum(rank[t] for t in terms), rank["span_ns"])
        # The reductions' stream waits for gradients, the compute stream for the reductions.
        table = jobs.run([jobs.LOCKSTEP, "analyze", self.run_dir().directory, "--table", "stream-waits", "--json", "-"], "/")
        rows = json.loads(table.stdout)["rows"]
        self.assertEqual(len({(row[2], row[3]) for row in rows}), 2, rows)

    def test_mpi_and_nccl_in_one_process(self):
        if not JOB_MPI.exists():
            self.skipTest("no Open MPI")
        done = self.ranks(2, self.job("--steps", "10", program=JOB_MPI))
        self.assertEqual(done.returncode, 0, done.stderr)
        for file in self.files():
            kinds = [int(k) for k in file.column("comms", "kind")]
            mode = file.column("collectives", "mode")
            self.assertIn(3, kinds)
            self.assertEqual(int(sum(mode == 3)), COLLECTIVES * 10)
            self.assertEqual(file.calls["MPI_Allreduce"], 10)
            self.assertEqual(int(sum(mode != 3)), 11)  # And MPI_Finalize.
        code, analysis, stderr = self.run_dir().analyze()
        self.sound(analysis)

    def test_torchrun_style(self):
        """No launcher of MPI: RANK and WORLD_SIZE as torchrun sets them, agents side by side."""
        words = self.job("--steps", "10")
        agents = [subprocess.Popen([jobs.LOCKSTEP, "run", "--after", "none", "--", *map(str, words)], cwd=self.dir,
                                   env={**jobs.ENVIRONMENT, **ENVIRONMENT, "RANK": str(rank), "WORLD_SIZE": "2",
                                        "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
        for agent in agents:
            _, said = agent.communicate(timeout=120)
            self.assertEqual(agent.returncode, 0, said)
        files = self.files()
        self.assertEqual(len(files), 2)
        for file in files:
            self.whole(file, 10)
        self.assertEqual(self.run_dir().analyze()[1]["trust"]["unmatched_collectives"], 0)


class Verdict(Case):
    """Of a job on GPUs in real time."""

    def test_the_slow_rank_is_named(self):
        done = self.ranks(3, self.job("--steps", "120", "--slow", "1:1.4"))
        self.assertEqual(done.returncode, 0, done.stderr)
        analysis = self.run_dir().analyze()[1]
        waits = {rank["rank"]: rank["exposed_wait_ns"] for rank in analysis["ranks"]}
        self.assertLess(waits[1], min(waits[0], waits[2]) / 2)
        self.assertEqual([f["rank"] for f in analysis["findings"] if f["id"] == "straggler.arrival"], [1], analysis["stragglers"])
        self.assertIn("Rank 1 ", analysis["verdict"])


class Endings(Case):
    STEPS = 20

    def end(self, how, code=0, steps=STEPS):
        words = ["--steps", str(steps), "--end", how]
        env = {**jobs.ENVIRONMENT, **ENVIRONMENT}
        bare = subprocess.run([str(w) for w in self.alone(*words)], cwd=self.dir, env=env, capture_output=True)
        done = self.one(self.alone(*words))
        self.assertEqual((done.returncode, done.stdout, jobs.without_ours(done.stderr)),
                         (bare.returncode, bare.stdout, bare.stderr))
        self.assertEqual(done.returncode, code, done.stderr)
        return self.recovered()[0]

    def test_exit_code(self):
        self.whole(self.end("code", 3), self.STEPS)

    def test_exception(self):
        # abort() runs no handlers: what CUPTI still held is missing, and that is said.
        file = self.end("throw", -signal.SIGABRT, 120)
        self.assertGreater(file.rows("kernels"), 0)
        self.assertEqual(file.losses.get("GpuTailLost"), 1, file.losses)

    def test_exit_without_handlers(self):
        file = self.end("_exit")
        self.assertEqual(file.losses.get("GpuTailLost"), 1, file.losses)

    def test_killed(self):
        self.whole(self.end("kill", -signal.SIGKILL), self.STEPS)

    def test_fork(self):
        self.whole(self.end("fork"), self.STEPS + 1)

    def test_exec(self):
        file = self.end("exec")
        self.assertEqual(len(file.column("processes", "pid")) >= 1, True)

    def test_stuck_gpu(self):
        """The application ends all the same where a flush never returns."""
        done = self.one(self.alone("--steps", "5"), {"FAKE_CUPTI_STUCK": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)


class Environment(Case):
    def said(self, done, what):
        return [line for line in done.stderr.decode().splitlines() if what in line]

    def test_off(self):
        done = self.one(["env"], run=["--gpu", "off"])
        self.assertNotIn(b"liblockstep-gpu", done.stdout)
        self.assertNotIn(b"NCCL_PROFILER_PLUGIN", done.stdout)
        done = self.one(self.alone("--steps", "3"), run=["--gpu", "off"])
        self.assertEqual(done.returncode, 0, done.stderr)
        file = self.files()[-1]
        self.assertEqual((file.rows("kernels"), file.rows("collectives")), (0, 0))

    def test_another_tool_has_cuda(self):
        other = self.dir + "/libToolsInjection64.so"
        done = self.one(self.alone("--steps", "3"), {"CUDA_INJECTION64_PATH": other})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.said(done, "GPU activity (CUDA) is not recorded")), 1, done.stderr)
        file = self.files()[0]
        self.assertEqual(file.rows("kernels"), 0)
        self.assertEqual(file.losses["SourceRefused"], 1)
        self.assertEqual(file.rows("collectives"), COLLECTIVES * 3)  # NCCL's own events all the same.

    def test_plugin_of_the_user(self):
        for version in (4, 5):
            plugin = TESTS / f"fake_nccl/libnccl-profiler-other{version}.so"
            out = f"{self.dir}/other{version}.txt"
            done = self.one(self.alone("--steps", "3"), {"NCCL_PROFILER_PLUGIN": str(plugin), "OTHER_PLUGIN_OUT": out})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(self.said(done, str(plugin))), 1, done.stderr)
            lines = pathlib.Path(out).read_text().splitlines()
            theirs = {what: int(count) for what, _, count in (line.rpartition(": ") for line in lines)}
            self.assertEqual([v for k, v in theirs.items() if k.startswith("start 2 ")], [COLLECTIVES * 3], theirs)
            self.assertFalse([k for k in theirs if "foreign" in k or "twice" in k], theirs)
            file = self.files()[-1]
            self.whole(file, 3)
            self.assertEqual(file.losses.get("NcclPluginChained"), 1)

    def test_plugin_switched_off(self):
        done = self.one(self.alone("--steps", "3"), {"NCCL_PROFILER_PLUGIN": "none"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.said(done, "NCCL_PROFILER_PLUGIN=none")), 1, done.stderr)
        file = self.files()[0]
        # What was called is known from the calls themselves.
        self.assertEqual(file.rows("collectives"), COLLECTIVES * 3)

    def test_no_driver(self):
        env = {"LOCKSTEP_CUPTI": REAL_CUPTI} if REAL_CUPTI else {"LOCKSTEP_CUPTI": "/no/such/libcupti.so"}
        done = self.one([INJECT], env)
        self.assertEqual((done.returncode, done.stdout), (4, b"worked on\n"), done.stderr)
        self.assertEqual(len(self.said(done, "lockstep: GPU activity")), 1, done.stderr)
        file = self.recovered()[0]
        self.assertTrue(file.meta.get("fact.cupti", "").startswith("state=refused"), file.meta)

    def test_refused_by_the_driver(self):
        done = self.one(self.alone("--steps", "3"), {"FAKE_CUPTI_FAIL": "cuptiActivityEnable=35"})
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = self.said(done, "lockstep: GPU activity")
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("NVreg_RestrictProfilingToAdminUsers", lines[0])
        self.assertEqual(self.files()[0].rows("kernels"), 0)
        code, analysis, _ = self.run_dir().analyze()
        self.assertEqual(code, 3)
        self.assertIn("GPU activity was not recorded", analysis["verdict"])
        self.assertIn("NVreg_RestrictProfilingToAdminUsers", analysis["verdict"])

    def test_nvml_hangs(self):
        done = self.one(self.alone("--steps", "150"), {"LOCKSTEP_FAKE_NVML": "hang"})
        self.assertEqual(done.returncode, 0, done.stderr)
        file = self.files()[0]
        self.whole(file, 150)
        self.assertEqual(file.rows("gpu_samples"), 0)

    def test_nvml_refuses(self):
        done = self.one(self.alone("--steps", "150"), {"LOCKSTEP_FAKE_NVML": "refuse"})
        file = self.files()[0]
        self.assertEqual(file.rows("gpu_samples"), 0)
        self.assertIn("Insufficient Permissions", file.meta.get("fact.nvml", ""))
        self.assertNotIn(b"NVML", done.stderr)


class Windows(Case):
    def test_steps(self):
        done = self.ranks(2, self.job("--steps", "30"), run=["--steps", "10:15"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for file in self.files():
            self.whole(file, 5)
        code, analysis, stderr = self.run_dir().analyze()
        self.sound(analysis)
        self.assertEqual(analysis["run"]["steps"], 5)

    def test_schedule(self):
        done = self.one(self.alone("--steps", "40"), run=["--schedule", "wait=4,warmup=2,active=3,repeat=3"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.whole(self.files()[0], 9)

    def test_size_limit(self):
        done = self.one(self.alone("--steps", "300"), run=["--max-bytes", "1200k"])
        self.assertEqual(done.returncode, 0, done.stderr)
        file = self.files()[0]
        self.assertEqual(file.losses.get("BytesLimit"), 1)
        self.assertGreater(file.rows("kernels"), 0)
        self.assertLess(file.rows("kernels"), (NCCL_KERNELS + COMPUTE_KERNELS) * 300)


class Leads(Case):
    """Hosts that are ahead of their GPU: a window has the kernels that were launched in it, and whole steps."""

    FIRST, END = 10, 15

    def record(self, lead, how, synchronised=False, window=True, run=(), env=None):
        words = [TESTS / "gpu_job", "lead", "24", lead, how, *(["synchronised"] if synchronised else [])]
        steps = ["--steps", f"{self.FIRST}:{self.END}"] if window else []
        done = self.one(words, env, run=[*steps, *run])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"violations 0", done.stdout)
        return list(jobs.latest(self.dir).files().values())[0]

    def launched_per_step(self, file):
        """How many kernels the host launched in each step, by the calls that launched them."""
        calls = dict(zip(map(int, file.column("api", "correlation")), map(int, file.column("api", "begin_ns"))))
        launches = [calls[int(c)] for c in file.column("kernels", "correlation")]
        spans = zip(map(int, file.column("steps", "index")), map(int, file.column("steps", "begin_ns")),
                    map(int, file.column("steps", "end_ns")))
        return {step: sum(begin <= at < end for at in launches) for step, begin, end in spans if begin < end}

    def test_windows_hold_what_was_launched_in_them(self):
        for lead, how, synchronised, run, kernels in ((0, "kernels", True, (), 4), (0.5, "kernels", False, (), 4),
                                                      (3, "streams", False, (), 5), (10, "graph", False, (), 4),
                                                      (10, "graph", False, ("--cuda-graphs", "whole"), 2)):
            with self.subTest(lead=lead, how=how, run=run):
                file = self.record(lead, how, synchronised, run=run)
                per_step = self.launched_per_step(file)
                self.assertEqual({step: per_step.get(step) for step in range(self.FIRST, self.END)},
                                 {step: kernels for step in range(self.FIRST, self.END)})
                self.assertEqual(file.rows("kernels"), kernels * (self.END - self.FIRST))
                # Of the GPU's clock a window without a wait for it shows one side.
                self.assertEqual({k for k in file.losses if k.startswith(("Gpu", "Launch", "Sync"))},
                                 {"GpuOutOfWindow"} | (set() if synchronised else {"GpuClockUnbounded"}))
                launch, start = map(int, file.meta["window_next_kernel.0"].split())
                self.assertGreaterEqual(launch, int(file.column("steps", "begin_ns")[-1]))
                self.assertGreater(start, launch)
                code, analysis, stderr = jobs.latest(self.dir).analyze()
                self.assertEqual(analysis["run"]["steps"], self.END - self.FIRST, stderr)

    def test_gpu_clock(self):
        """What the GPU's clock is off by lies within the bound, and only a clock that is off is told of."""
        for off, ppm in ((0, 0), (50_000, 0), (-50_000, 0), (4_000_000, 0), (0, 500)):
            with self.subTest(off=off, ppm=ppm):
                file = self.record(0, "kernels", True, window=False,
                                   env={"FAKE_GPU_CLOCK_NS": str(off), "FAKE_GPU_CLOCK_PPM": str(ppm)})
                low, high = map(int, file.meta["gpu_clock.0"].split())
                kernels = file.column("kernels", "begin_ns")
                drift = int((int(kernels[-1]) - int(kernels[0])) * ppm * 1e-6)
                self.assertLessEqual(low, off)
                self.assertGreaterEqual(high, off + drift)
                self.assertEqual(int(file.meta["gpu_clock_error_ns"]), max(-low, high))
                # It is part of the error that every comparison across ranks knows.
                code, analysis, stderr = jobs.latest(self.dir).analyze()
                self.assertEqual(analysis["trust"]["clock_error_ns_max"], max(-low, high), stderr)
                if off > 3_000_000:
                    self.assertTrue([line for line in analysis["remarks"] if line.startswith("GPU times may be off")])
                self.assertEqual(file.losses.get("LaunchAfterStart", 0) > 0, off < 0)
                if off > 3_000_000:
                    self.assertGreater(file.losses["SyncBeforeEnd"], 0)
                if off <= 0 and ppm == 0:
                    self.assertNotIn("SyncBeforeEnd", file.losses)


class InTime(Case):
    """What the agent does while the GPU works on."""

    def test_terminated(self):
        """The agent fetches what CUPTI holds before it passes the signal on, within 100 ms."""
        agent = subprocess.Popen([jobs.LOCKSTEP, "run", "--after", "none", "--",
                                  *map(str, self.alone("--steps", "20", "--end", "wait"))], cwd=self.dir,
                                 env={**jobs.ENVIRONMENT, **ENVIRONMENT}, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        while b"waiting" not in agent.stdout.readline():
            self.assertIsNone(agent.poll())
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=120)
        self.assertEqual(agent.returncode, -signal.SIGTERM)
        self.whole(self.recovered()[0], 21)

    def test_the_agents_switch(self):
        """A timer turns recording on and off anywhere in a step: every launch in the window has its kernel, and no other."""
        words = [TESTS / "gpu_job", "lead", "200", "10", "kernels"]
        done = self.one(words, run=["--delay", "0.3", "--duration", "0.3"])
        self.assertEqual(done.returncode, 0, done.stderr)
        file = list(jobs.latest(self.dir).files().values())[0]
        begin, end = int(file.column("windows", "begin_ns")[0]), int(file.column("windows", "end_ns")[0])
        launched = {int(c) for c, kind in zip(file.column("api", "correlation"), file.column("api", "kind")) if kind == 1}
        self.assertGreater(len(launched), 20)
        self.assertEqual({int(c) for c in file.column("kernels", "correlation")}, launched)
        self.assertTrue(all(begin <= int(at) <= end for at in file.column("api", "begin_ns")))
        # Ten steps of 8 ms behind the host: the last of them began on the GPU after recording had gone off.
        self.assertGreater(int(file.column("kernels", "begin_ns")[-1]), end)


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
