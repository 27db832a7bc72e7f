"""Causes of one rank's doing in runs made from a text: each comes back with its price, and stays silent in the
control beside it."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs

MAKE_RUN = next((path for path in (jobs.BUILD / "tests/make_run", jobs.BUILD / "make_run") if path.is_file()), None)


def gpu(kernel="500us", count=20, name="other_kernel", launch="5us", before="", middle="", after="", head=""):
    lines = ["ranks 2", "steps 24", "warmup 1", "gpu", "network alpha=10us bandwidth=100GB/s", head, "step", before,
             f"  kernel {kernel} count={count} name={name} launch={launch}", middle, "  nccl allreduce 1MB", "  join",
             after, "end"]
    return "\n".join(lines) + "\n"


LATE_INPUT = """
ranks 4
nodes 1
steps 20
warmup 1
seed 5
network alpha=20us bandwidth=10GB/s
jitter 0.5%
late rank=1 by=30ms steps=0-40 at=input
step
  input 1500us
  forward 10ms
  backward 10ms buckets=4MiB,4MiB
  waitall
  optimizer 2ms
end
"""


class Causes(unittest.TestCase):
    def setUp(self):
        if MAKE_RUN is None:
            self.skipTest("make_run is not built")
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)

    def analyze(self, text, *options, code=(0,)):
        spec = pathlib.Path(self.place.name) / "spec.run"
        spec.write_text(text)
        run = pathlib.Path(self.place.name) / f"run{len(list(pathlib.Path(self.place.name).iterdir()))}"
        done = jobs.run([MAKE_RUN, spec, run], self.place.name)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        done = jobs.run([jobs.LOCKSTEP, "analyze", run, "-q", "--json", "-", *options], self.place.name)
        self.assertIn(done.returncode, code, done.stderr.decode())
        self.run_dir = run
        return json.loads(done.stdout)

    def price(self, analysis, finding):
        """Nanoseconds per step, None where there is no such finding."""
        for each in analysis["findings"]:
            if each["id"] == finding:
                self.assertTrue(each["evidence"] and each["action"] and each["headline"])
                self.assertTrue(each["explain"]["rows"], finding)
                return each["saves_ns_per_step"]
        return None

    def ids(self, analysis):
        return [finding["id"] for finding in analysis["findings"]]

    def test_host_sync(self):
        # The host waits for the GPU and then needs 2 ms before it launches again: that is its own work, of which nothing
        # is recorded, and not the wait's. Only without the wait it would be hidden.
        slow = self.analyze(gpu(after="  sync\n  host 2ms"))
        self.assertNotIn("sync.host", self.ids(slow))
        self.assertAlmostEqual(self.price(slow, "idle.unexplained") / 2e6, 1, delta=0.05)
        finding = next(f for f in slow["findings"] if f["id"] == "idle.unexplained")
        self.assertIn("100 % after the host had waited for the GPU in cudaStreamSynchronize", finding["evidence"])
        self.assertIn("NVTX", finding["action"])
        # The same host work without waiting is hidden behind the GPU's.
        self.assertEqual(self.ids(self.analyze(gpu(after="  host 2ms"))), [])

    def test_host_work(self):
        slow = self.analyze(gpu(kernel="100us", after="  push tokenize\n  host 6ms\n  pop"))
        step = slow["summary"]["step_ns_mean"]
        # All of the step but the kernels and the all-reduce.
        self.assertAlmostEqual(self.price(slow, "host.work"), step - 20 * 100e3 - 20e3, delta=0.05 * step)
        self.assertIn("tokenize", slow["findings"][0]["headline"])

    def test_launch_bound(self):
        slow = self.analyze(gpu(kernel="5us", count=400, head="dispatch 15us"))
        self.assertAlmostEqual(self.price(slow, "launch.bound") / (400 * 15e3), 1, delta=0.05)
        self.assertNotIn("launch.bound", self.ids(self.analyze(gpu(kernel="25us", count=400, head="dispatch 15us"))))

    def test_input(self):
        slow = self.analyze(gpu(kernel="100us", before="  input 6ms"))
        step = slow["summary"]["step_ns_mean"]
        self.assertAlmostEqual(self.price(slow, "input.bound"), step - 20 * 100e3 - 20e3, delta=0.05 * step)
        self.assertNotIn("host.work", self.ids(slow))
        hidden = self.analyze(gpu(before="  input 6ms"))
        self.assertEqual(self.ids(hidden), [])

    def test_one_ranks_input_is_that_ranks(self):
        """One rank loads 30 ms longer: one cause, one price, and a total that is no more than both together are."""
        found = self.analyze(LATE_INPUT)
        first, second = found["findings"][:2]
        self.assertEqual((first["id"], first["rank"]), ("straggler.arrival", 1))
        self.assertEqual(found["stragglers"][0]["cause"], "input")
        self.assertAlmostEqual(first["saves_ns_per_step"] / 30e6, 1, delta=0.02)
        self.assertEqual(second["id"], "input.bound")
        self.assertAlmostEqual(second["saves_ns_per_step"] / 1.5e6, 1, delta=0.05)
        self.assertEqual(found["verdict"], first["headline"])
        self.assertIn("gain 31.", found["additivity"])

    def test_input_without_a_loader(self):
        # Nothing marks it: the host works before the forward pass of each step.
        slow = self.analyze(gpu(kernel="100us", before="  host 6ms"))
        step = slow["summary"]["step_ns_mean"]
        self.assertAlmostEqual(self.price(slow, "input.bound"), step - 20 * 100e3 - 20e3, delta=0.05 * step)
        self.assertIn("before the work of a step begins, where input is loaded", slow["findings"][0]["headline"])
        self.assertEqual(slow["findings"][0]["id"], "input.bound")

    def test_input_has_a_price_without_steps(self):
        text = "ranks 1\nsteps 30\nmarks off\nstep\n  input 20ms\n  compute 10ms\nend\n"
        found = next(f for f in self.analyze(text, code=(0, 3))["findings"] if f["id"] == "input.bound")
        self.assertAlmostEqual(found["saves_share"], 2 / 3, delta=0.03)

    def test_what_a_foreign_trace_does_not_tell(self):
        # 61 % idle, and no calls: never "nothing found", and advice for what recorded it.
        kernel = lambda at: {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at, "dur": 380,
                             "args": {"device": 0, "context": 1, "stream": 7, "correlation": at}}
        events = [kernel(1_000 * i) for i in range(1, 41)]
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 990, "dur": 5, "args": {}})
        trace = pathlib.Path(self.place.name) / "trace.json"
        trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events,
                                     "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}}))
        done = jobs.run([jobs.LOCKSTEP, "analyze", trace, "-q", "--json", "-"], self.place.name)
        analysis = json.loads(done.stdout)
        finding = analysis["findings"][0]
        self.assertEqual(finding["id"], "idle.unexplained")
        self.assertAlmostEqual(finding["saves_share"], 39 * 620 / (39 * 1_000 + 380), delta=0.001)
        self.assertIn("61 %", finding["headline"])
        self.assertNotIn("nothing found", analysis["verdict"])
        self.assertIn("torch.profiler", finding["action"])
        self.assertNotIn("lockstep run", finding["action"])
        self.assertNotIn("--torch-ops", finding["action"])

    def test_kernels_with_remedies(self):
        found = self.analyze(gpu(name="ampere_sgemm_128x64_nn"))
        self.assertAlmostEqual(self.price(found, "kernel.fp32_gemm") / (0.875 * 10e6), 1, delta=0.02)
        self.assertEqual(self.ids(self.analyze(gpu(name="sm90_xmma_gemm_bf16bf16_bf16f32"))), [])

    def test_hiding_communication_gains_nothing_where_the_host_is_slow(self):
        slow = self.analyze(gpu(kernel="100us", before="  host 8ms", head="network alpha=600us bandwidth=100GB/s"))
        self.assertNotIn("transfer.exposed", self.ids(slow))
        text = jobs.run([jobs.LOCKSTEP, "analyze", self.run_dir, "-q"], self.place.name).stdout.decode()
        text = " ".join(text.split())
        self.assertRegex(text, r"if transfers took no time, a step would be next to no shorter \(replayed\): "
                               r"what limits it is host work of rank \d+ \(9\d % of what the step waits for\)")
        self.assertNotIn("faster network", text)
        # Where the GPU is busy hiding it would gain.
        busy = self.analyze(gpu(head="network alpha=600us bandwidth=100GB/s"))
        self.assertAlmostEqual(self.price(busy, "transfer.exposed") / 610e3, 1, delta=0.05)

    CPU = "\n".join(["ranks 4", "steps 44", "seed 3", "jitter 0.2%", "{late}", "step", "  forward 20ms",
                     "  push save_model", "  compute 100us name=save", "  pop", "  backward 20ms", "  allreduce 1MB",
                     "end"]) + "\n"

    def test_bursts(self):
        late = "\n".join(f"late rank=0 by=30ms steps={i}-{i} at=save" for i in range(7, 44, 8))
        found = self.analyze(self.CPU.format(late=late))
        self.assertAlmostEqual(self.price(found, "burst.periodic") / (30e6 * 5 / 44), 1, delta=0.06)
        burst = next(f for f in found["findings"] if f["id"] == "burst.periodic")
        self.assertIn("Every 8 steps rank 0", burst["headline"])
        self.assertIn("save", burst["headline"])
        self.assertNotIn("straggler.arrival", self.ids(found))
        irregular = "\n".join(f"late rank=0 by=30ms steps={i}-{i} at=save" for i in (9, 14, 29, 32, 41))
        self.assertNotIn("burst.periodic", self.ids(self.analyze(self.CPU.format(late=irregular))))
        self.assertEqual(self.ids(self.analyze(self.CPU.format(late=""))), [])

    def test_warmup(self):
        slow = "\n".join(f"slow rank={r} factor=2 steps=0-2" for r in range(4))
        found = self.analyze(self.CPU.format(late=slow))
        self.assertEqual(self.ids(found), ["warmup.captured"])
        self.assertEqual([step["index"] for step in found["steps"] if step["warmup"]], [0, 1, 2])

    def test_explain(self):
        self.analyze(gpu(after="  sync\n  host 2ms"))
        def explain(number):
            return jobs.run([jobs.LOCKSTEP, "analyze", self.run_dir, "-q", "--explain", number], self.place.name)
        self.assertIn("cudaStreamSynchronize", explain(1).stdout.decode())
        for number in (0, 6, -1):
            done = explain(number)
            self.assertEqual(done.returncode, 2, number)
            self.assertIn("a number from 1 to", done.stderr.decode())
        self.analyze(self.CPU.format(late=""))
        self.assertIn("no findings", explain(1).stderr.decode())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
