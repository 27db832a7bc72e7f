"""Communication that the host carries out in threads of its own (gloo, mpi, ucc): host_backends_test.py BUILD_DIR [-v] CASE"""

import json
import random
import sys
import unittest

import traces
from import_test import Case

STEP, GLOO = 10_000, (3001, 3002)


class Operations(Case):
    def job(self, fill, ranks=1, steps=4, backend="gloo"):
        """fill(trace, begin of the step) writes each step."""
        job = []
        for rank in range(ranks):
            trace = traces.Trace(rank, ranks, backend=backend)
            for i in range(steps):
                trace.annotation("ProfilerStep#%d" % i, i * STEP, STEP)
                fill(trace, i * STEP)
            job.append(trace)
        self.run_dir = "run-%d" % len(list(self.dir.glob("run-*")))
        self.imported(*self.write(job), run=self.run_dir)
        self.code = 3 if ranks > 1 else 0  # Who waits for whom is not known: a part is missing.
        return self.analysis(self.run_dir, code=self.code)

    def printed(self, *words):
        return self.lockstep("analyze", self.run_dir, *words, code=self.code).stdout

    def expect(self, analysis, **terms):
        """Of each rank in each step, in microseconds."""
        for step in analysis["steps"]:
            for rank in step["ranks"]:
                got = {name: rank[name + "_ns"] for name in terms}
                self.assertEqual(got, {name: us * 1000 for name, us in terms.items()}, analysis["verdict"])

    def work(self, trace, at, begin, length, tid=None, name="aten::mm"):
        trace.operator(name, at + begin, length, tid)

    def in_flight(self, trace, at, begin, length, tid=GLOO[0], name="gloo:all_reduce"):
        trace.annotation(name, at + begin, length, tid)

    def test_on_a_thread_of_its_own(self):
        def fill(trace, at):
            self.work(trace, at, 100, 2_000)
            self.in_flight(trace, at, 3_000, 6_000)
        for ranks in (1, 2):
            analysis = self.job(fill, ranks)
            self.expect(analysis, comm=6_000, exposed_unsplit=6_000, overlap=0, compute=4_000, idle=0)
            self.assertIn("xposed", analysis["verdict"])
            text = self.printed() + self.printed("--table", "groups")
            self.assertNotIn("no communication", text)
            self.assertNotIn("does not communicate", text)

    def test_several_threads_count_once(self):
        def fill(trace, at):
            self.in_flight(trace, at, 1_000, 4_000)
            self.in_flight(trace, at, 3_000, 4_000, GLOO[1], "gloo:broadcast")
        self.expect(self.job(fill), comm=6_000, exposed_unsplit=6_000, compute=4_000)

    def test_beside_work(self):
        def fill(trace, at):
            self.work(trace, at, 100, 9_000)
            self.in_flight(trace, at, 3_000, 6_000)
        for ranks in (1, 2):
            analysis = self.job(fill, ranks)
            self.expect(analysis, comm=6_000, exposed_unsplit=0, overlap=6_000, compute=10_000)
            self.assertNotIn("does not communicate", analysis["verdict"])

    def test_beside_the_backward_pass(self):
        """Its operators are work; others' threads (what the backend adds up) are not; what hands over may wait."""
        def fill(trace, at):
            backward = trace.autograd
            self.work(trace, at, 1_000, 3_000, backward, "autograd::engine::evaluate_function: MmBackward0")
            self.work(trace, at, 4_000, 5_000, backward, "autograd::engine::evaluate_function: AccumulateGrad")
            self.work(trace, at, 4_500, 100, backward, "c10d::allreduce_")
            self.work(trace, at, 5_000, 500, backward, "aten::div_")
            self.in_flight(trace, at, 2_000, 6_000)
            self.work(trace, at, 6_000, 1_000, GLOO[0], "aten::add_")
        self.expect(self.job(fill), comm=6_000, exposed_unsplit=3_500, overlap=2_500, compute=6_500)

    def test_of_a_compiled_program(self):
        """wait_tensor is an operator, and no work."""
        def fill(trace, at):
            self.work(trace, at, 1_000, 100, name="_c10d_functional::all_reduce")
            self.work(trace, at, 2_000, 4_000, name="_c10d_functional::wait_tensor")
            self.in_flight(trace, at, 1_050, 4_950)
        self.expect(self.job(fill), comm=4_950, exposed_unsplit=4_950, compute=5_050)

    def test_in_the_training_thread(self):
        def fill(trace, at):
            self.work(trace, at, 100, 1_900)
            self.work(trace, at, 2_000, 3_000, name="c10d::allreduce_")
            self.in_flight(trace, at, 2_100, 2_800, trace.tid)
        self.expect(self.job(fill), comm=3_000, exposed_unsplit=3_000, compute=7_000)

    def test_each_backend(self):
        for backend in ("gloo", "mpi", "ucc"):
            analysis = self.job(lambda trace, at: self.in_flight(trace, at, 0, 5_000, name=backend + ":all_reduce"), 2,
                                backend=backend)
            self.expect(analysis, comm=5_000, exposed_unsplit=5_000)
            self.assertTrue(analysis["verdict"].startswith(
                f"Who waits for whom in communication through {backend} is not recorded (its operations are in flight for 50 % "),
                analysis["verdict"])
            self.assertEqual(self.loss(analysis, "BackendNotCaptured"), 1)
            self.assertEqual("lockstep run" in analysis["verdict"], backend != "ucc")

    def test_on_one_rank_only(self):
        """Which rank it is changes no sentence."""
        verdicts = set()
        for alone in (0, 1):
            def fill(trace, at):
                self.work(trace, at, 100, 2_000)
                if trace.rank == alone:
                    self.in_flight(trace, at, 3_000, 6_000)
            for backend in ("gloo", "cpu:gloo,cuda:nccl"):
                analysis = self.job(fill, 2, backend=backend)
                self.assertEqual(analysis["summary"]["exposed_unsplit_ns"], 3_000_000)
                verdicts.add(analysis["verdict"])
        self.assertEqual(len(verdicts), 1, verdicts)
        self.assertIn("Who waits for whom in communication through gloo is not recorded", verdicts.pop())

    def test_beside_a_gpu(self):
        """Exposed while no kernel computes and no operator runs; then the host is what the GPU waits for."""
        def fill(trace, at):
            self.work(trace, at, 100, 400)
            trace.kernel("gemm", at + 200, 3_800, trace.launch(at + 150))
            self.in_flight(trace, at, 2_000, 6_000)  # 2 ms beside the kernel, 1 ms beside an operator.
            self.work(trace, at, 5_000, 1_000)
            self.work(trace, at, 9_000, 900)
            trace.kernel("gemm", at + 9_200, 600, trace.launch(at + 9_100))
        analysis = self.job(fill)
        self.expect(analysis, exposed_unsplit=3_000, overlap=2_000, comm=5_000, compute=4_400)
        self.assertTrue(analysis["verdict"].startswith("Communication is exposed for 3 ms"), analysis["verdict"])

    def test_any(self):
        """Counted instant by instant, and the table of groups sums to it."""
        for seed in range(12):
            choose = random.Random(seed)
            gpu = seed % 3 == 2
            operators, flying, kernels = set(), set(), set()

            def fill(trace, at):
                def some(count, longest):
                    for _ in range(count):
                        begin = choose.randrange(0, 9_000, 50)
                        yield begin, choose.randrange(50, min(longest, STEP - begin) + 1, 50)
                for begin, length in some(6, 1_500):
                    self.work(trace, at, begin, length, choose.choice([trace.tid, trace.autograd]))
                    operators.update(range(at + begin, at + begin + length, 50))
                for begin, length in some(5, 4_000):
                    self.in_flight(trace, at, begin, length, choose.choice(GLOO), choose.choice(["gloo:all_reduce", "gloo:gather"]))
                    flying.update(range(at + begin, at + begin + length, 50))
                self.work(trace, at, 9_900, 50, trace.autograd, "autograd::engine::evaluate_function: MmBackward0")
                operators.add(at + 9_900)
                if gpu:
                    begin = choose.randrange(200, 5_000, 50)
                    trace.kernel("gemm", at + begin, 3_000, trace.launch(at + begin - 100))
                    kernels.update(range(at + begin, at + begin + 3_000, 50))
            analysis = self.job(fill)
            rank, steps = analysis["ranks"][0], [step["ranks"][0] for step in analysis["steps"] if step["complete"]]
            origin = traces.Trace(0, 1).ns(0)
            steps_ns = [(step["begin_ns"] - origin, step["end_ns"] - origin) for step in steps]
            begin, end = (min(kernels), max(kernels) + 50) if gpu else (steps_ns[0][0] / 1000, steps_ns[-1][1] / 1000)
            window = set(range(int(begin), int(end), 50))  # Of a GPU trace of others: from its first to its last work.
            work = kernels if gpu else operators
            hidden, exposed = flying & work & window, (flying - kernels - operators) & window
            self.assertEqual((rank["exposed_unsplit_ns"], rank["overlap_ns"], rank["comm_ns"]),
                             tuple(50_000 * len(part) for part in (exposed, hidden, hidden | exposed)), seed)
            self.assertGreater(len(exposed) * len(hidden), 0, seed)
            if not gpu:
                self.assertEqual(rank["compute_ns"] + rank["exposed_unsplit_ns"], rank["span_ns"], seed)
            table = json.loads(self.printed("--table", "groups", "--json", "-"))
            exposed_ns = [column["name"] for column in table["columns"]].index("exposed_ns")
            # Tables cover the host's work at both ends of the steps as well.
            steps_us = range(int(steps_ns[0][0] / 1000), int(steps_ns[-1][1] / 1000), 50)
            self.assertEqual(sum(row[exposed_ns] for row in table["rows"]),
                             50_000 * len((flying - kernels - operators) & set(steps_us)), seed)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
