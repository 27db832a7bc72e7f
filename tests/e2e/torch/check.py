"""PyTorch programs under `lockstep run`: check.py BUILD_DIR CASE [PYTHON]"""
import functools, glob, hashlib, json, os, re, shutil, signal, subprocess, sys, tempfile, unittest

BUILD = os.path.abspath(sys.argv[1])
LOCKSTEP = BUILD + "/lockstep"
HERE = os.path.dirname(os.path.abspath(__file__))
DDP_TRAIN = os.path.join(HERE, "../../../examples/torch/ddp_train.py")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
PYTHON = sys.argv[3] if len(sys.argv) > 3 else "/usr/bin/python3"  # Of the programs: one that has PyTorch.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_", "PYTHON"))}
ENVIRONMENT["PYTHONDONTWRITEBYTECODE"] = "1"

try:
    import h5py
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import mpi_sessions, rank_tables, torch_abort  # noqa: E402
except ImportError as error:
    print("skipped: %s" % error)
    sys.exit(77)
ENVIRONMENT.update(mpi_sessions.ENVIRONMENT)
HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", HAS_TORCH], env=ENVIRONMENT).returncode != 0:
    print("skipped: %s has no torch" % PYTHON)
    sys.exit(77)
if not os.path.exists(LOCKSTEP):
    print("skipped: lockstep is not built")
    sys.exit(77)


def needs_mpi(test):
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return unittest.skip("no mpi4py")(test)
    return test if shutil.which("mpirun") else unittest.skip("no mpirun")(test)


def run(words, cwd, timeout=120, **environment):
    """A job over gloo that PyTorch aborted at its end is run once more (torch_abort)."""
    def start():
        return subprocess.run(words, cwd=cwd, env=dict(ENVIRONMENT, **environment), capture_output=True, text=True,
                              timeout=timeout)

    def clear():
        shutil.rmtree(cwd + "/out", ignore_errors=True)
        for left in glob.glob(cwd + "/*meeting*"):
            os.remove(left)
    return torch_abort.once_more_if_aborted(start, clear)


class RankFile:
    def __init__(self, path):
        with rank_tables.open_file(path) as f:
            data = bytes(f["string_bytes/value"][:])
            self.texts = [data[o:o + n].decode() for o, n in zip(f["strings/offset_bytes"][:], f["strings/length_bytes"][:])]
            self.tables = {name: {c: f[name][c][:] for c in f[name]} for name in f}

    def text(self, id_):
        return self.texts[id_] if id_ < len(self.texts) else ""

    def rows(self, table):
        columns = self.tables[table]
        return [dict(zip(columns, values)) for values in zip(*columns.values())]

    def ranges(self, source=2):
        return [(self.text(r["name"]), r["category"], r) for r in self.rows("ranges") if r["source"] == source]

    def count(self, name):
        return sum(text == name for text, _, _ in self.ranges())

    def losses(self):
        return {self.text(r["name"]): self.text(r["detail"]) for r in self.rows("losses")}

    def facts(self):
        meta = {self.text(r["key"]): self.text(r["value"]) for r in self.rows("meta")}
        return {k[5:]: dict(f.split("=", 1) for f in v.split("\t")) for k, v in meta.items() if k.startswith("fact.")}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-torch-")
        self.addCleanup(shutil.rmtree, self.dir, True)

    def lockstep(self, *words, options=(), **environment):
        """Runs it traced, quietly, into self.dir/out."""
        shutil.rmtree(self.dir + "/out", ignore_errors=True)
        return run([LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", *options, "--", *words], self.dir,
                   **environment)

    def file(self, name="rank-00000.h5"):
        # A rank that failed keeps its spool until the next command.
        if not os.path.exists(self.dir + "/out/ranks/" + name):
            run([LOCKSTEP, "analyze", "-q", "out"], self.dir)
        return RankFile(self.dir + "/out/ranks/" + name)

    def parameters(self, name):
        """A line for each parameter that the program saved there, its values as a digest."""
        done = run([PYTHON, "-c", DIGESTS, name], self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotEqual(done.stdout, "")
        return done.stdout

    def script(self, text, name="script.py"):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(text)
        return path


JOB = ["--steps", "8", "--width", "512", "--layers", "3", "--batch", "8", "--bucket-cap-mb", "1"]


BUCKETS = """
import json, sys, tempfile, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import ddp_train
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as directory:
    dist.init_process_group("gloo", init_method="file://%s/meeting" % directory, rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(ddp_train.make_model(512, 3), bucket_cap_mb=1)
    for _ in range(4):
        model(torch.ones(2, 512)).sum().backward()
    data = model._get_ddp_logging_data()
    dist.destroy_process_group()
print(json.dumps([[int(s) for s in data["rebuilt_bucket_sizes"].split(",")],
                  [group.strip() for group in data["rebuilt_per_bucket_param_indices"].split(",")]]))
"""
DIGESTS = """
import hashlib, sys, torch
for name, values in torch.load(sys.argv[1]).items():
    print(name, hashlib.sha256(values.numpy().tobytes()).hexdigest())
"""


@functools.lru_cache(None)
def buckets_of_job():
    """Sizes in launch order, from DDP itself: the same model without Lockstep."""
    done = run([PYTHON, "-c", BUCKETS, os.path.dirname(DDP_TRAIN)], "/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_mpi
class Ddp(Case):
    """The example: DDP whose buckets go over MPI."""

    def setUp(self):
        super().setUp()
        plain = run(MPIRUN + [PYTHON, DDP_TRAIN, *JOB, "--save", "plain.pt"], self.dir)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        traced = run(MPIRUN + [LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--", PYTHON, DDP_TRAIN, *JOB,
                               "--save", "traced.pt"], self.dir)
        self.assertEqual(traced.returncode, 0, traced.stderr)
        self.plain, self.traced = plain, traced
        done = run([LOCKSTEP, "analyze", "-q", "out"], self.dir)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.dir + "/out/analysis.json") as f:
            self.analysis = json.load(f)

    def test_all(self):
        self.results_are_the_same()
        self.every_step_and_its_phases()
        self.buckets_are_ddps_own()

    def results_are_the_same(self):
        without_time = lambda text: re.sub(r" in .*s$", "", text, flags=re.M)
        self.assertEqual(without_time(self.plain.stdout), without_time(self.traced.stdout))
        self.assertEqual(self.plain.stderr, self.traced.stderr)
        self.assertEqual(self.parameters("plain.pt"), self.parameters("traced.pt"))

    def every_step_and_its_phases(self):
        run_ = self.analysis["run"]
        self.assertEqual((run_["steps"], run_["incomplete_steps"]), (8, 0))
        self.assertEqual([s["index"] for s in self.analysis["steps"]], list(range(8)))
        for step in self.analysis["steps"]:
            self.assertEqual([cell["rank"] for cell in step["ranks"]], [0, 1])
            for cell in step["ranks"]:
                phases, length = cell["phases"], cell["end_ns"] - cell["begin_ns"]
                self.assertEqual(sum(phases.values()), length)
                self.assertGreaterEqual(phases["other_ns"], 0)
                for phase in ("input_ns", "forward_ns", "backward_ns", "optimizer_ns"):
                    self.assertGreater(phases[phase], 0, (step["index"], phase))
        self.assertNotIn("TorchHook", [loss["name"] for loss in self.analysis["losses"]])
        for rank in (0, 1):
            file = self.file("rank-%05d.h5" % rank)
            self.assertEqual([r["source"] for r in file.rows("steps")], [2] * 8)
            for name in ("DistributedDataParallel.forward", "backward", "SGD.step"):
                self.assertEqual(file.count(name), 8, name)
            self.assertEqual(file.count("DataLoader.__next__"), 9)  # The last one ends the loop.
            samples = file.rows("gpu_memory")
            self.assertGreater(len(samples), 0)
            for sample in samples:
                self.assertEqual((sample["device"], sample["kind"]), (65535, 3))
                self.assertGreater(sample["allocated_bytes"], 10 << 20)

    def buckets_are_ddps_own(self):
        self.assertEqual(self.analysis["trust"]["unmatched_collectives"], 0)
        sizes, parameters = buckets_of_job()
        self.assertGreater(len(sizes), 2)
        buckets = self.analysis["buckets"]
        self.assertEqual(buckets["sizes"], sizes)
        self.assertEqual([row["parameters"] for row in buckets["rows"]], parameters)
        self.assertTrue(all(row["rebuilt"] and row["dtype"] == "float32" for row in buckets["rows"]))
        self.assertEqual((buckets["current_cap_mb"], buckets["steps"], buckets["steps_matched"]), (1.0, 6, 6))
        self.assertTrue(all(row["collectives"] == 6 and row["wait_ns_median"] >= 0 for row in buckets["rows"]))
        for rank in (0, 1):
            file = self.file("rank-%05d.h5" % rank)
            steps = file.rows("steps")
            reduced = [(r["begin_ns"], r["bytes"]) for r in file.rows("collectives") if r["kind"] == 1]
            for step in steps[1:]:
                inside = [b for t, b in sorted(reduced) if step["begin_ns"] <= t < step["end_ns"]]
                self.assertEqual(inside, sizes)
            by_hook = [int(r["payload"]) for name, _, r in file.ranges() if name.startswith("ddp bucket")]
            self.assertEqual(by_hook[-len(sizes):], sizes)


class Variants(Case):
    def check(self, method):
        words = [PYTHON, HERE + "/variants.py", method]
        plain, traced = run(words, self.dir), self.lockstep(*words)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual((traced.returncode, traced.stdout, traced.stderr), (0, plain.stdout, plain.stderr))
        self.assertEqual(glob.glob1(self.dir + "/out/ranks", "*.h5"), ["rank-00000.h5"])  # Workers leave nothing.
        file = self.file()
        self.assertNotIn("TorchHook", file.losses())
        # Two batches to a step of the first optimizer; its copies and the others make none. What came after is open.
        self.assertEqual([(r["index"], r["complete"]) for r in file.rows("steps")], [(0, 1), (1, 1), (2, 1), (3, 0)])
        expected = {"LBFGS.step": 1, "Doubling.step": 1, "GradScaler.step": 1, "ddp bucket 0": 3, "decorated": 4,
                    "in a generator": 2, "raises": 1, "c10d::all_gather": 1, "c10d::all_reduce": 2, "load one": 0,
                    "DistributedDataParallel.forward": 4, "scripted": 0, "SGD.step": 3}
        self.assertEqual({name: file.count(name) for name in expected}, expected)
        # LBFGS calls its closure, with a forward and a backward, several times within its step.
        (lbfgs,) = [r for name, _, r in file.ranges() if name == "LBFGS.step"]
        inside = [name for name, _, r in file.ranges() if lbfgs["begin_ns"] < r["begin_ns"] and
                  r["begin_ns"] + r["duration_ns"] < lbfgs["begin_ns"] + lbfgs["duration_ns"]]
        self.assertGreater(inside.count("backward"), 1)
        self.assertEqual(file.facts()["ddp_model"]["hook"], "__main__.own_hook")

    def test_fork(self):
        self.check("fork")

    def test_spawn(self):
        self.check("spawn")


class Operators(Case):
    def test_operators_and_the_same_results(self):
        words = [PYTHON, HERE + "/variants.py", "fork"]
        plain, traced = run(words, self.dir), self.lockstep(*words, options=["--torch-ops"])
        self.assertEqual((traced.returncode, traced.stdout), (0, plain.stdout), traced.stderr)
        names = [name for name, _, _ in self.file().ranges(source=3)]
        for operator in ("aten::mse_loss", "aten::addmm", "aten::mse_loss_backward"):
            self.assertTrue(any(name.startswith(operator) for name in names), (operator, set(names)))


    def test_shapes_and_flops(self):
        """Those of torch.profiler, for each operator that it has a formula for and each combination of shapes."""
        words = [PYTHON, HERE + "/shapes.py"]
        truth = run([*words, "truth"], self.dir)
        self.assertEqual(truth.returncode, 0, truth.stderr)
        wanted = {}
        for operator, shapes, flops in map(json.loads, truth.stdout.splitlines()):
            # Convolutions are seen below autograd, where they have one name. Of 1d it knows no formula.
            name = {"aten::conv2d": "aten::convolution.default"}.get(operator, operator + (
                ".Tensor" if operator in ("aten::add", "aten::mul") else ".default"))
            wanted[name, str(shapes)] = flops
        self.assertTrue({"aten::mm.default", "aten::addmm.default", "aten::bmm.default", "aten::convolution.default",
                         "aten::mul.Tensor"} <= {name for name, _ in wanted}, wanted)
        plain, traced = run([*words, "train"], self.dir), self.lockstep(*words, "train", options=["--torch-shapes"])
        self.assertEqual((traced.returncode, traced.stdout), (0, plain.stdout), traced.stderr)
        table = self.table("ops", "--group-by", "shapes")
        got = {(row["op"], str([shape for shape in json.loads(row["shapes"]) if shape])): row for row in table if row["shapes"]}
        for key, flops in wanted.items():
            if key in got:  # What comes before training begins is not seen.
                self.assertEqual(got[key]["flops"], flops * got[key]["calls"], key)
        self.assertGreater(len(wanted.keys() & got.keys()), 6, (wanted, list(got)))
        # Both passes, 1d and transposed ones too: by hand, of one call.
        of = {(op, shapes): row["flops"] // row["calls"] for (op, shapes), row in got.items()}
        line = str([[3, 6, 64], [3, 6, 5], [3]])
        self.assertEqual(of["aten::convolution.default", line], 2 * 3 * 56 * 3 * 6 * 5)
        self.assertEqual(of["aten::convolution_backward.default", str([[3, 3, 56], [3, 6, 64], [3, 6, 5]])],
                         2 * 2 * 3 * 56 * 3 * 6 * 5)
        up = str([[3, 6, 8, 8], [6, 4, 2, 2], [4]])
        self.assertEqual(of["aten::convolution.default", up], 2 * 3 * 8 * 8 * 6 * 4 * 2 * 2)
        # Together they are the rows without shapes; any column orders them.
        whole = {row["op"]: row for row in self.table("ops", "--sort-by", "flops")}
        for op, row in whole.items():
            for column in ("calls", "cpu_self_ns", "flops"):
                self.assertEqual(row[column] or 0, sum(r[column] or 0 for r in table if r["op"] == op), (op, column))
        flops = [row["flops"] or 0 for row in whole.values()]
        self.assertEqual(flops, sorted(flops, reverse=True))
        done = run([LOCKSTEP, "analyze", "--table", "ranges", "--group-by", "shapes", self.latest()], self.dir)
        self.assertEqual(done.returncode, 2)

    def table(self, name, *options):
        done = run([LOCKSTEP, "analyze", "--table", name, "--top", "0", *options, "--json", "-", self.latest()], self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        table = json.loads(done.stdout)
        return [dict(zip([column["name"] for column in table["columns"]], row)) for row in table["rows"]]

    def latest(self):
        return self.dir + "/out"


def compiling_python():
    """An interpreter whose torch has a compiler that works: LOCKSTEP_TORCH2_PYTHON, else the one on the path."""
    for python in (os.environ.get("LOCKSTEP_TORCH2_PYTHON"), PYTHON, shutil.which("python3")):
        if python and os.path.exists(python) and run([python, "-c", "import torch; assert torch.compile(torch.nn.Identity(), backend='eager')(1) == 1"],
                          "/", timeout=300).returncode == 0:
            return python
    return None


class Compiled(Case):
    """What torch.compile makes of a program does not depend on whether Lockstep looks on."""

    def setUp(self):
        super().setUp()
        self.python = compiling_python()
        if self.python is None:
            self.skipTest("no torch whose compiler works (LOCKSTEP_TORCH2_PYTHON names an interpreter that has one)")

    def test_the_same_graphs(self):
        words = [self.python, HERE + "/compiled.py", "eager", "aot_eager"]
        # A cache each: what one has compiled, and learned of shapes, is not to spare the other anything. One order of sets.
        plain = run(words, self.dir, timeout=280, PYTHONHASHSEED="0", TORCHINDUCTOR_CACHE_DIR=self.dir + "/cache-plain")
        traced = self.lockstep(*words, timeout=280, PYTHONHASHSEED="0", TORCHINDUCTOR_CACHE_DIR=self.dir + "/cache-traced")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual((traced.returncode, traced.stdout), (0, plain.stdout), traced.stderr)
        worded = lambda text: [re.sub(r"[\d:. ]+", " ", line) for line in text.splitlines()]  # Times, pids.
        self.assertEqual(worded(traced.stderr), worded(plain.stderr))
        file = self.file()
        self.assertNotIn("TorchHook", file.losses())
        for name in ("DistributedDataParallel.forward", "backward", "SGD.step"):
            self.assertGreater(file.count(name), 20, name)
        self.assertGreater(file.count("torch.compile"), 1)
        self.assertGreater(len(file.rows("steps")), 1)


BROKEN = {
    # What a torch to come may lack, taken away before the hooks look at it: name of the loss -> how.
    "DataLoader": "del torch.utils.data.dataloader._BaseDataLoaderIter",
    "Optimizer.step": "torch.optim.Optimizer = type('Optimizer', (), {})",
    "GradScaler.step": "torch.cuda.amp.GradScaler = object; (hasattr(torch, 'amp') and setattr(torch.amp, 'GradScaler', object))",
    "ddp": "del torch.nn.parallel.DistributedDataParallel.register_comm_hook",
    "torch.distributed.all_reduce": "torch.distributed.distributed_c10d.all_reduce = None",
    "the memory of each step": "torch.cuda.is_initialized = None",
}


LISTING = """
import os, sys
print(sys.path, sorted(m for m in sys.modules if "lockstep" in m or m in ("ctypes", "sitecustomize")), sys.argv)
"""
HALF = """
import os, signal, sys, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1)
class Ends(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x
    @staticmethod
    def backward(context, g):
        %s
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
Ends.apply(model(torch.ones(1, 2))).sum().backward()
"""


TRAINING = """
import torch
weights = torch.ones(3, requires_grad=True)
sgd = torch.optim.SGD if hasattr(torch.optim.Optimizer, "zero_grad") else None
for i in range(3):
    loss = (weights * 2).sum()
    loss.backward()
    if sgd:
        optimizer = i and optimizer or sgd([weights], lr=0.1)
        optimizer.step()
print(weights.tolist())
"""


class Lacking(Case):
    """A hook that finds no place is a loss, said once and by its name; the others are placed."""

    def test_each_part(self):
        # Its sitecustomize comes after ours and changes torch between its import and our hooks' look at it.
        for part, how in BROKEN.items():
            with self.subTest(part=part):
                self.script("import sys\nsys.path.insert(0, %r)\nimport spoil\n" % self.dir, "sitecustomize.py")
                self.script("""
import _lockstep.state as state
start = state.start
def spoiled(torch):
    import torch.utils.data.dataloader
    import torch.nn.parallel
    %s
    start(torch)
state.start = spoiled
""" % how, "spoil.py")
                script = self.script(TRAINING)
                plain, traced = run([PYTHON, script], self.dir), self.lockstep(PYTHON, script, PYTHONPATH=self.dir)
                self.assertEqual(traced.returncode, 0, traced.stderr)
                if part != "Optimizer.step":
                    self.assertEqual(traced.stdout, plain.stdout)
                file = self.file()
                self.assertEqual(file.count("backward"), 3)
                details = [file.text(r["detail"]) for r in file.rows("losses") if file.text(r["name"]) == "TorchHook"]
                self.assertEqual([d.split(": ")[0] for d in details], [part])

    def test_all_of_them(self):
        self.script("import _lockstep.torch_hooks as hooks\nhooks.os = None\n", "sitecustomize.py")
        script = self.script(TRAINING)
        traced = self.lockstep(PYTHON, script, PYTHONPATH=self.dir)
        self.assertEqual((traced.returncode, traced.stdout), (0, run([PYTHON, script], self.dir).stdout), traced.stderr)
        self.assertTrue(self.file().losses()["TorchUnhooked"].startswith("the hooks failed: "))


class Quiet(Case):
    """As if nothing were there."""

    def compare(self, *words, **environment):
        plain, traced = run(words, self.dir, **environment), self.lockstep(*words, **environment)
        self.assertEqual((traced.returncode, traced.stdout, traced.stderr),
                         (plain.returncode, plain.stdout, plain.stderr))
        return traced

    def test_without_torch(self):
        script = self.script(LISTING)
        self.compare(PYTHON, script, "a")
        self.compare(PYTHON, "-c", LISTING)
        self.compare(PYTHON, "-I", "-c", LISTING)
        self.compare(PYTHON, script, PYTHONPATH=":/mine")  # Empty: the working directory.
        self.compare(PYTHON, script, PYTHONPATH="")
        # Nothing of ours runs there, so nothing takes our directory off sys.path.
        bare = self.lockstep(PYTHON, "-S", "-c", LISTING)
        self.assertEqual(bare.stdout.replace("'%s/python', " % BUILD, ""), run([PYTHON, "-S", "-c", LISTING], self.dir).stdout)
        child = self.script("import subprocess, sys; print(subprocess.run([sys.executable, %r], capture_output=True, "
                            "text=True).stdout)" % script, "parent.py")
        self.compare(PYTHON, child)
        self.assertEqual(self.file().ranges(), [])

    def test_another_sitecustomize(self):
        os.mkdir(self.dir + "/site")
        for text in ("import sys; sys.first = __file__, __name__, sys.modules[__name__].__spec__.name\n",
                     "raise RuntimeError('its own trouble')\n", "import no_such_module\n"):
            self.script(text, "site/sitecustomize.py")
            self.compare(PYTHON, "-c", LISTING + "print(getattr(sys, 'first', None)); import sitecustomize",
                         PYTHONPATH=self.dir + "/site")

    def test_a_second_copy_of_lockstep(self):
        # A source tree or a wheel named in PYTHONPATH beside the one that `run` names.
        copy = self.dir + "/copy"
        shutil.copytree(BUILD + "/python", copy)
        with open(copy + "/behind.py", "w"):
            pass
        job = self.script("import behind\n" + TRAINING)
        self.compare(PYTHON, job, PYTHONPATH=copy)
        self.assertEqual(self.file().count("backward"), 3)
        for path in (BUILD + "/python:" + copy, copy + ":" + BUILD + "/python"):
            bare = run([PYTHON, "-c", "import behind; print(1)"], self.dir, PYTHONPATH=path)
            self.assertEqual((bare.returncode, bare.stdout, bare.stderr), (0, "1\n", ""))

    def test_an_import_hook_that_asks_all_finders(self):
        # As wrapt's ImportHookFinder does, first and last in the list.
        for place in (0, 100):
            self.script("""
import importlib.util, sys
class Finder:
    asked = set()
    def find_spec(self, name, path=None, target=None):
        if name != "torch" or name in self.asked:
            return None
        self.asked.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asked.discard(name)
        return spec
sys.meta_path.insert(%d, Finder())
""" % place, "sitecustomize.py")
            self.compare(PYTHON, self.script(TRAINING), PYTHONPATH=self.dir)
            self.assertEqual(self.file().count("backward"), 3)

    def test_a_module_of_the_same_name_wins(self):
        self.script("print('mine', __name__)", "lockstep.py")
        self.compare(PYTHON, self.script("import lockstep, torch; print(lockstep.__file__)"))

    def test_isolated(self):
        job = "import torch; print(torch.ones(1).sum().item())"
        for flags, lost in (("-I", True), ("-E", True), ("-B", False)):
            self.compare(PYTHON, flags, "-c", job)
            self.assertEqual("PythonIsolated" in self.file().losses(), lost, flags)

    def test_fsdp_example_says_what_it_needs(self):
        if run([PYTHON, "-c", "import sys, torch; sys.exit(torch.cuda.is_available())"], "/").returncode != 0:
            self.skipTest("has a GPU")
        done = self.compare(PYTHON, os.path.join(os.path.dirname(DDP_TRAIN), "fsdp_train.py"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs an NVIDIA GPU", done.stderr)

    def test_endings(self):
        # Tracebacks name one more frame, so only their last lines are compared.
        for ending in ("sys.exit(7)", "raise ValueError('x')", "os.kill(os.getpid(), signal.SIGINT); return g",
                       "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)"):
            script = self.script(HALF % ending)
            plain, traced = run([PYTHON, script], self.dir), self.lockstep(PYTHON, script)
            self.assertEqual((traced.returncode, traced.stdout), (plain.returncode, plain.stdout), ending)
            self.assertEqual(traced.stderr.splitlines()[-1:], plain.stderr.splitlines()[-1:], ending)
            file = self.file()
            complete = [r["complete"] for r in file.rows("steps")]
            self.assertEqual(complete[:1], [1], ending)
            backward = 1 if ending.startswith(("os._exit", "os.kill(os.getpid(), signal.SIGKILL")) else 2
            self.assertEqual(file.count("backward"), backward, ending)


API = """
import lockstep, threading
@lockstep.range("decorated", "optimizer")
def twice(n):
    return n and twice(n - 1)
print([batch for batch in lockstep.ranges(range(3), "load", lockstep.INPUT)])
for i in range(4):
    lockstep.step()
    with lockstep.range("outer", "forward") as outer:
        with lockstep.range("inner"):
            lockstep.mark("here")
    print(twice(2))
lockstep.step_end()
print(lockstep.recording() in (True, False))
lockstep.stop(); recorded = lockstep.recording()
with lockstep.range("while off"): pass
lockstep.start()
try:
    lockstep.range("x", "no such")
except ValueError as error:
    print(error)
try:
    with lockstep.range("left by an exception"): raise KeyError
except KeyError:
    print("out")
"""


class Module(Case):
    def test_module(self):
        script = self.script(API)
        plain = run([PYTHON, script], self.dir, PYTHONPATH=BUILD + "/python")
        traced = self.lockstep(PYTHON, script)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual((traced.returncode, traced.stdout), (0, plain.stdout), traced.stderr)
        file = self.file()
        found = {}
        for name, category, r in file.ranges(source=0):
            found.setdefault((name, category, r["depth"]), []).append(r)
        self.assertEqual({key: len(rows) for key, rows in found.items()},
                         {("load", 1, 0): 4, ("outer", 2, 0): 4, ("inner", 0, 1): 4, ("here", 0, 0): 4,
                          ("decorated", 4, 0): 4, ("decorated", 4, 1): 4, ("decorated", 4, 2): 4,
                          ("left by an exception", 0, 0): 1})
        self.assertEqual([(r["index"], r["source"], r["complete"]) for r in file.rows("steps")],
                         [(i, 0, 1) for i in range(4)])


CALLS = """
from _lockstep import probe
print(type(probe.range_begin), probe.torch_enter(5, -1, 7), probe.torch_enter(0, -1, -1), probe.range_begin(b"a", 2) > 0)
for arguments in ((), (1, 2), (b"a", "2"), (b"a", 1 << 70)):
    try:
        probe.range_begin(*arguments)
    except (TypeError, OverflowError) as error: print(type(error))
"""


class Calls(Case):
    def test_hooks_call_builtins(self):
        """Not through ctypes; what is wrong is an exception, as with any other builtin."""
        traced = self.lockstep(PYTHON, self.script(CALLS))
        self.assertEqual(traced.stdout, "<class 'builtin_function_or_method'> 0 5 True\n" + "<class 'TypeError'>\n" * 3
                         + "<class 'OverflowError'>\n", traced.stderr)


ACCUMULATES = """
import contextlib, tempfile, torch, torch.distributed as dist
with tempfile.TemporaryDirectory() as directory:
    dist.init_process_group("gloo", init_method="file://%s/meeting" % directory, rank=0, world_size=1)
    layers = [torch.nn.Linear(256, 256) for _ in range(8)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
    for micro in range(4 * 4):
        with contextlib.nullcontext() if micro % 4 == 3 else model.no_sync():
            model(torch.ones(2, 256)).sum().backward()
    sizes = model._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    dist.destroy_process_group()
print(sizes.replace(",", ""))
"""


class Accumulates(Case):
    def test_buckets_are_those_of_after_the_rebuild(self):
        """It follows the first backward that reduces, which is the fourth."""
        traced = self.lockstep(PYTHON, self.script(ACCUMULATES))
        self.assertEqual(run([LOCKSTEP, "merge", "out"], self.dir).returncode, 0)
        buckets = RankFile(self.dir + "/out/timeline.h5").rows("gradient_buckets")
        self.assertGreater(len(buckets), 1, traced.stderr)
        self.assertEqual([(int(row["bytes"]), int(row["rebuilt"])) for row in buckets], [(int(size), 1) for size in traced.stdout.split()])


LABELS = """
import sys, threading, torch
from torch.profiler import record_function

def labelled(name):
    with record_function(name):
        yield name

with record_function("outer"):
    first, second = labelled("first"), labelled("second")
    next(first), next(second)
    first.close(), second.close()            # In the order in which they began.
again = record_function("again")
with again:
    with again:
        pass

@record_function("decorated")
def decorated(n):
    return n and decorated(n - 1)

decorated(3)
elsewhere = record_function("elsewhere")
thread = threading.Thread(target=elsewhere.__enter__)
thread.start(), thread.join()
elsewhere.__exit__(None, None, None)         # Of another thread's: nobody knows what that means.
try:
    with record_function("left by an exception"):
        raise KeyError("x")
except KeyError as error:
    print(error)
name = "made up %d" % len(sys.argv)
count = sys.getrefcount(name)
with record_function(name):
    pass
print(sys.getrefcount(name) - count)
for _ in range(600):
    record_function("never ends").__enter__()
with record_function("after them"):
    pass
for wrong in ("a" + chr(0xdc00), 7):
    try:
        with record_function(wrong):
            pass
    except Exception as error:
        print(type(error))
"""


class Labels(Case):
    def test_labels_that_do_not_nest(self):
        """Every label that ended where it began, whatever the order, and nothing is kept of its name."""
        script = self.script(LABELS)
        plain, traced = run([PYTHON, script], self.dir), self.lockstep(PYTHON, script)
        self.assertEqual((traced.returncode, traced.stdout, traced.stderr), (plain.returncode, plain.stdout, plain.stderr))
        file = self.file()
        rows = {}
        for name, _, r in file.ranges():
            rows.setdefault(name, []).append((r["begin_ns"], r["begin_ns"] + r["duration_ns"]))
        self.assertEqual({name: len(each) for name, each in rows.items()},
                         {"outer": 1, "first": 1, "second": 1, "again": 2, "decorated": 4, "left by an exception": 1,
                          "made up 1": 1, "after them": 1})
        (first,), (second,) = rows["first"], rows["second"]
        self.assertTrue(first[0] <= second[0] <= first[1] <= second[1])
        inner, outer = sorted(rows["again"], reverse=True)
        self.assertTrue(outer[0] <= inner[0] <= inner[1] <= outer[1])
        self.assertIn("RangeTooDeep", file.losses())


def run_case(names):
    """The class of tests that the command line names."""
    result = unittest.TextTestRunner(verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(names[sys.argv[2]]))
    if result.testsRun == len(result.skipped):
        sys.exit(77)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    run_case(globals())
