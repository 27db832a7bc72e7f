"""Records of every kind and of every version of CUPTI, from its buffers to the tables of rank files: check.py BUILD_DIR"""
import collections
import glob
import gzip
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import jobs
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

JOB, REPLAY = jobs.BUILD / "tests/gpu_job", jobs.BUILD / "tests/gpu_replay"
if not jobs.have(str(JOB), str(REPLAY), str(jobs.BUILD / "liblockstep-gpu.so"), jobs.LOCKSTEP):
    print("skipped: not built")
    sys.exit(77)

NONE = 0xffffffff


class RankFiles(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-e2e-cupti-")

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def record(self, name, *words, env=None, options=()):
        done = jobs.run([jobs.LOCKSTEP, "run", "--after", "none", *options, "-o", f"{self.dir}/{name}", "--", *words],
                        self.dir, env)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return list(jobs.Run(f"{self.dir}/{name}").files().values())[0], done

    def near(self, measured, expected, share=0.1):
        # The length of a tick is measured within the job, which takes 25 ms on a machine that may be busy.
        self.assertGreater(measured, expected * (1 - share))
        self.assertLess(measured, expected * (1 + share))

    def check_values(self, file, version):
        text = file.text
        kernels = {c: file.column("kernels", c) for c in file.tables["kernels"]}
        order = sorted(range(len(kernels["begin_ns"])), key=lambda i: kernels["begin_ns"][i])
        self.assertEqual([text(kernels["name"][i]) for i in order], ["values_of(float*, int)"] * 3)
        for i, duration in zip(order, (4e6, 2e6, 2e6)):
            self.near(kernels["duration_ns"][i], duration)
        self.assertEqual([kernels["stream"][i] for i in order], [13, 14, 13])
        self.assertEqual([kernels["graph_node"][i] for i in order], [0, 0, (21 << 32) + 1 if version >= 13 else 0])
        self.assertEqual({int(d) for d in kernels["device"]}, {0})
        self.assertEqual(file.rows("kernel_shapes"), 1)
        shape = {c: int(file.column("kernel_shapes", c)[0]) for c in file.tables["kernel_shapes"]}
        self.assertEqual([shape[c] for c in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")],
                         [11, 12, 13, 2, 3, 4])
        self.assertEqual([shape[c] for c in ("registers_per_thread", "static_shared_bytes", "dynamic_shared_bytes")],
                         [77, 1234, 56789])
        self.assertEqual(shape["cluster_size"], 6 if version >= 18 else 0)

        copies = {c: file.column("copies", c) for c in file.tables["copies"]}
        order = sorted(range(len(copies["bytes"])), key=lambda i: copies["bytes"][i])
        self.assertEqual([copies["bytes"][i] for i in order], [1000, 1001, 1002, 1003, 1004])
        self.assertEqual([copies["kind"][i] for i in order], [1, 2, 3, 4, 6])
        self.assertEqual([copies["host_memory"][i] for i in order], [2, 2, 0, 0, 0])
        self.assertEqual([copies["source_device"][i] for i in order], [-1, 0, 0, 0, -1])
        self.assertEqual([copies["destination_device"][i] for i in order], [0, -1, 0, 1, 0])
        for i, duration in zip(order, (1e6, 2e6, 3e6, 4e6, 5e6)):
            self.near(copies["duration_ns"][i], duration)

        api = {c: file.column("api", c) for c in file.tables["api"]}
        names = collections.Counter(text(name) for name in api["name"])
        self.assertEqual(names, {"cudaLaunchKernel": 1, "cuLaunchKernel": 1, "cudaGraphLaunch": 1, "cudaMemcpyAsync": 3,
                                 "cudaMemcpyPeerAsync": 1, "cudaMemsetAsync": 1, "cudaEventRecord": 1,
                                 "cudaStreamWaitEvent": 1, "cudaEventSynchronize": 1, "cudaStreamSynchronize": 1,
                                 "cudaDeviceSynchronize": 1})
        kinds = {text(name): int(kind) for name, kind in zip(api["name"], api["kind"])}
        self.assertEqual([kinds[n] for n in ("cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync",
                                             "cudaStreamSynchronize", "cudaGraphLaunch", "cudaEventRecord")],
                         [1, 1, 2, 2, 3, 4, 6])
        by_call = {int(c): i for i, c in enumerate(api["correlation"])}
        for table in ("kernels", "copies"):
            for begin, correlation in zip(file.column(table, "begin_ns"), file.column(table, "correlation")):
                self.assertGreaterEqual(begin, api["begin_ns"][by_call[int(correlation)]])
        self.assertEqual({int(file.column("threads", "tid")[t]) for t in api["thread"]} - {0},
                         {int(file.column("processes", "pid")[0])})

        sync = {c: file.column("sync", c) for c in file.tables["sync"]}
        by_kind = {int(kind): i for i, kind in enumerate(sync["kind"])}
        self.assertEqual(sorted(int(kind) for kind in sync["kind"]), [1, 2, 3, 4, 5])
        self.assertEqual(int(sync["stream"][by_kind[2]]), 14)
        self.assertEqual(int(sync["stream"][by_kind[3]]), 14)
        self.assertEqual(int(sync["stream"][by_kind[4]]), NONE)
        # Who waits for what: from the ids of newer versions, else by event and order.
        for kind in (1, 2):
            self.assertEqual(int(sync["record_correlation"][by_kind[kind]]), int(sync["correlation"][by_kind[5]]), kind)
            self.assertEqual(int(sync["record_stream"][by_kind[kind]]), 13)
        self.assertEqual(file.text(file.column("devices", "name")[0]), "NVIDIA Fake H200")
        self.assertEqual(int(file.column("devices", "sm_count")[0]), 132)
        self.assertEqual(file.losses, {})

    def test_versions(self):
        # Kernel4 to Kernel9 by the fake's iterator; without a version the real library's, Kernel10, where there is one.
        for version in (12, 13, 14, 17, 18, 22, 24, 28, None):
            with self.subTest(version=version):
                env = {"FAKE_CUPTI_VERSION": str(version)} if version else {}
                file, done = self.record(f"v{version}", JOB, "values", env=env)
                self.assertEqual(done.stdout, b"violations 0\n")
                self.check_values(file, version or 130000)

    def test_replay(self):
        first, _ = self.record("first", JOB, "values", env={"LOCKSTEP_GPU_RAW_DIR": self.dir})
        self.check_values(first, 130000)
        raw = glob.glob(f"{self.dir}/*.raw")
        self.assertEqual(len(raw), 1)
        second, _ = self.record("second", REPLAY, *raw)
        for table, columns in (("kernels", ("stream", "correlation", "graph_node")), ("copies", ("bytes", "kind")),
                               ("sync", ("kind", "event", "record_correlation")), ("api", ("kind", "correlation")),
                               ("kernel_shapes", ("grid_x", "cluster_size"))):
            for column in columns:
                self.assertEqual(sorted(first.column(table, column).tolist()), sorted(second.column(table, column).tolist()),
                                 f"{table}.{column}")
        for one, other in zip(sorted(first.column("kernels", "duration_ns")), sorted(second.column("kernels", "duration_ns"))):
            self.near(other, one)
        self.assertEqual(second.losses, {})

    def test_recorded_on_an_h200(self):
        """Buffers of a rank of `ddp_nccl --steps 8 --width 128 --batch 32 --mix` as CUPTI 13.0 Update 1 gave them."""
        raw = pathlib.Path(self.dir) / "h200.raw"
        raw.write_bytes(gzip.decompress((pathlib.Path(__file__).parent / "recorded/h200_cuda13.0.raw.gz").read_bytes()))
        file, _ = self.record("h200", REPLAY, raw)
        kernels = collections.Counter(re.split(r"[<(]", file.text(name).removeprefix("void "))[0].split("::")[-1]
                                      for name in file.column("kernels", "name"))
        self.assertEqual(kernels, {
            "MatrixProduct": 184, "Tanh": 56, "TanhBackward": 56, "SquaredError": 8, "GradientStep": 8,
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL": 16, "ncclDevKernel_AllGather_RING_LL": 8,
            "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL": 8, "ncclDevKernel_Broadcast_RING_LL": 8,
            "ncclDevKernel_Reduce_Sum_f32_RING_LL": 8, "ncclDevKernel_SendRecv": 8})
        self.assertEqual([file.rows(table) for table in ("api", "sync", "copies")], [769, 284, 59])
        self.assertEqual(collections.Counter(file.column("sync", "kind").tolist()), {2: 139, 3: 8, 4: 3, 5: 134})
        self.assertEqual([file.text(name) for name in file.column("devices", "name")], ["NVIDIA H200"])
        self.assertEqual(file.losses, {"NcclKernelUntied": 56})  # NCCL's own events are not in CUPTI's buffers.

    def test_whole_graphs(self):
        file, _ = self.record("whole", JOB, "graph", "4", options=["--cuda-graphs", "whole"])
        self.assertEqual([file.text(name) for name in file.column("kernels", "name")], ["CUDA graph 5"] * 4)
        for duration in file.column("kernels", "duration_ns"):
            self.near(duration, 40e3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
