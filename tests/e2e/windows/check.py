"""Capture windows end to end: check.py BUILD_DIR CASE"""
import glob, json, os, shutil, signal, subprocess, sys, tempfile, time, unittest

BUILD = os.path.abspath(sys.argv[1])
LOCKSTEP = BUILD + "/lockstep"
TESTS = BUILD + "/tests/"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]

if not os.path.exists(LOCKSTEP):
    print("skipped: lockstep is not built")
    sys.exit(77)
try:
    import h5py
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import rank_tables  # noqa: E402
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import jobs

MPI_INIT = jobs.mpi_ops()["MPI_Init"]


def late_ns():
    """By how much a window may last longer than its time: until the agent gets a core."""
    return jobs.on_this_machine(1) * 1e9



class Rank:
    """What a rank file says of windows."""

    def __init__(self, path):
        with rank_tables.open_file(path) as f:
            data = bytes(f["string_bytes/value"][:])
            self.texts = [data[o:o + n].decode()
                          for o, n in zip(f["strings/offset_bytes"][:], f["strings/length_bytes"][:])]
            self.steps = [int(i) for i, c in zip(f["steps/index"][:], f["steps/complete"][:]) if c]
            self.cut_steps = int(sum(1 for c in f["steps/complete"][:] if not c))
            w = f["windows"]
            self.windows = [{k: int(w[k][i]) for k in w} for i in range(len(w["begin_ns"]))]
            self.collectives = len(f["collectives/seq"])
            self.seqs = [int(s) for s in f["collectives/seq"][:]]
            self.ranges, self.times = {}, {}
            for n, begin, length in zip(f["ranges/name"][:], f["ranges/begin_ns"][:], f["ranges/duration_ns"][:]):
                name = self.texts[n] if n < len(self.texts) else ""
                self.ranges[name] = self.ranges.get(name, 0) + 1
                self.times.setdefault(name, []).append((int(begin), int(begin) + int(length)))
            self.losses = {self.texts[n]: int(c) for n, c in zip(f["losses/name"][:], f["losses/count"][:])}
            # MPI_Init lasts longer on a busy machine than what some windows wait: it may reach into them.
            begins = [int(t) for t, op in zip(f["mpi_calls/begin_ns"][:], f["mpi_calls/op"][:]) if op != MPI_INIT]
            begins += [int(t) for t in f["ranges/begin_ns"][:]]
            self.outside = sum(not any(v["begin_ns"] <= t <= v["end_ns"] for v in self.windows) for t in begins)

    def causes(self):
        return [(v["begin_cause"], v["end_cause"], v["cut"]) for v in self.windows]


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-windows-")

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def command(self, options, program, np=0):
        words = [LOCKSTEP, "run", "--after", "none", "-o", "out"] + options + ["--"] + program
        return (MPIRUN + ["-np", str(np)] if np else []) + words

    def run_it(self, options, program, np=0, env=None, code=0):
        done = subprocess.run(self.command(options, program, np), cwd=self.dir, env=dict(os.environ, **(env or {})),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def ranks(self):
        ranks = [Rank(p) for p in sorted(glob.glob(self.dir + "/out/ranks/rank-?????.h5"))]
        for rank in ranks:
            self.assertEqual(rank.outside, 0, "rows outside the windows")
        return ranks

    def analyze(self, code=0):
        done = subprocess.run([LOCKSTEP, "analyze", "-q", "out"], cwd=self.dir, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        with open(self.dir + "/out/analysis.json") as f:
            return json.load(f), done.stdout


class Steps(Case):
    """Windows by step numbers on ranks that start a second apart."""

    def setUp(self):
        super().setUp()
        if not shutil.which("mpirun") or not os.path.exists(TESTS + "e2e_window_job"):
            self.skipTest("no Open MPI")

    def job(self, *words):
        return [TESTS + "e2e_window_job"] + list(words)

    def same(self, options, expected, program, cut=0, **more):
        done = self.run_it(options, program, np=2, **more)
        ranks = self.ranks()
        self.assertEqual(len(ranks), 2)
        for rank in ranks:
            self.assertEqual(rank.steps, expected)
            self.assertEqual(rank.cut_steps, cut)
        return done, ranks

    def test_steps(self):
        _, ranks = self.same(["--steps", "10:14"], [10, 11, 12, 13], self.job("40", "1000", "offset=1000"))
        for rank in ranks:
            self.assertEqual(rank.causes(), [(1, 1, 0)])
            self.assertEqual((rank.windows[0]["first_step"], rank.windows[0]["end_step"]), (10, 14))
            self.assertEqual(rank.seqs, [10, 11, 12, 13])  # Counted from the beginning of the job.
            self.assertEqual(rank.losses, {})
        analysis, text = self.analyze()
        self.assertEqual((analysis["run"]["window"]["first_step"], analysis["run"]["window"]["last_step"]), (10, 13))
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertIn("Recorded: steps 10-13 of each rank.", text)

    def test_every(self):
        expected = [5, 6, 25, 26, 45, 46]
        _, ranks = self.same(["--steps", "5:7/20"], expected, self.job("60", "500", "offset=1000"))
        self.assertEqual(ranks[0].causes(), [(1, 1, 0)] * 3)
        analysis, _ = self.analyze()
        windows = analysis["run"]["window"]["windows"]
        self.assertEqual([(w["first_step"], w["last_step"]) for w in windows], [(5, 6), (25, 26), (45, 46)])
        # The ranks' totals are of what was recorded, not of the gaps.
        for rank in analysis["ranks"]:
            terms = sum(rank[k] for k in ("compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns",
                                          "exposed_copy_ns", "idle_ns"))
            self.assertEqual(terms, rank["span_ns"])
            steps = sum(c["end_ns"] - c["begin_ns"] for s in analysis["steps"] for c in s["ranks"]
                        if c["rank"] == rank["rank"])
            self.assertEqual(rank["span_ns"], steps)

    def test_schedule_from_the_environment(self):
        env = {"LOCKSTEP_SCHEDULE": "skip_first=3,wait=1,warmup=1,active=3,repeat=2"}
        _, ranks = self.same([], [5, 6, 7, 10, 11, 12], self.job("30", "500"), env=env)
        self.assertEqual(ranks[0].causes(), [(2, 2, 0), (2, 2, 0)])

    def test_job_ends_inside(self):
        _, ranks = self.same(["--steps", "25:100"], list(range(25, 30)), self.job("30", "500"))
        for rank in ranks:
            self.assertEqual(rank.causes(), [(1, 8, 1)])
            self.assertEqual(rank.losses, {"WindowCut": 1})
        _, text = self.analyze()
        self.assertIn("the window was cut short", text)

    def test_killed_inside(self):
        self.run_it(["--steps", "10:30"], self.job("40", "500", "kill=1"), np=2, code=137)
        analysis, _ = self.analyze(code=3)
        ranks = self.ranks()
        for rank in ranks:
            self.assertEqual(rank.causes()[0][0], 1)
            self.assertEqual(rank.causes()[0][2], 1)
            self.assertEqual(rank.losses["WindowCut"], 1)
            self.assertEqual(rank.steps[0], 10)
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)

    def test_by_hand_from_a_thread(self):
        _, ranks = self.same([], list(range(10, 20)), self.job("30", "500", "window=10:20"), cut=1)
        # On from the run's begin, off at the first stop, then the window.
        self.assertEqual(ranks[0].causes(), [(0, 5, 0), (5, 5, 0)])

    def test_start_off(self):
        _, ranks = self.same(["--start", "off"], list(range(10, 20)), self.job("30", "500", "window=10:20"), cut=1)
        self.assertEqual(ranks[0].causes(), [(5, 5, 0)])

    def test_without_options(self):
        _, ranks = self.same([], list(range(10)), self.job("10", "500"))
        self.assertEqual([r.causes() for r in ranks], [[(0, 8, 0)]] * 2)
        analysis, text = self.analyze()
        self.assertEqual(analysis["run"]["window"]["recording"], "all")
        self.assertNotIn("Recorded:", text)

    def test_ranks(self):
        self.run_it(["--ranks", "0,2:3"], self.job("20", "500"), np=3)
        ranks = self.ranks()
        self.assertEqual([r.collectives for r in ranks], [22, 0, 22])  # With MPI_Finalize.
        self.assertEqual(ranks[1].windows, [])
        analysis, text = self.analyze()
        self.assertEqual(analysis["run"]["ranks_missing"], [])
        self.assertEqual(analysis["run"]["ranks_left_out"], [1])
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)
        self.assertEqual([r["rank"] for r in analysis["ranks"]], [0, 2])
        self.assertIn("Rank 1 was not recorded", text)

    def test_time_differs_and_is_no_error(self):
        # Long enough for ranks that a busy machine starts half a second apart.
        self.run_it(["--delay", "0.3", "--duration", "0.7"], self.job("400", "3000"), np=2)
        ranks = self.ranks()
        common = sorted(set(ranks[0].steps) & set(ranks[1].steps))
        either = sorted(set(ranks[0].steps) | set(ranks[1].steps))
        self.assertGreater(len(common), 20)
        for rank in ranks:
            self.assertEqual(rank.causes(), [(4, 4, 0)])
            length = rank.windows[0]["end_ns"] - rank.windows[0]["begin_ns"]
            self.assertTrue(0.69e9 < length < 0.7e9 + late_ns(), length)
        analysis, _ = self.analyze()
        window = analysis["run"]["window"]
        self.assertEqual((window["first_step"], window["last_step"]), (common[0], common[-1]))
        self.assertEqual(window["outside_steps"], len(either) - len(common))
        self.assertEqual(analysis["trust"]["unmatched_collectives"], 0)

    def test_no_steps_live(self):
        done = self.run_it(["--steps", "5:10"], self.job("10", "500", "nosteps"), np=2)
        self.assertEqual(done.stderr.count("no step was seen"), 1)
        for rank in self.ranks():
            self.assertEqual((rank.windows, rank.losses), ([], {"StepsNotLive": 1}))


class Requests(Case):
    """A signal or the trigger file: the same steps everywhere, though ranks are a second apart."""

    def setUp(self):
        super().setUp()
        if not shutil.which("mpirun") or not os.path.exists(TESTS + "e2e_window_job"):
            self.skipTest("no Open MPI")

    def start(self, options, program):
        return subprocess.Popen(self.command(options, program, np=2), cwd=self.dir, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def begun(self):
        """How many steps both ranks have begun."""
        counts = [self.dir + "/count.%d" % rank for rank in range(2)]
        return min(os.path.getsize(path) if os.path.exists(path) else 0 for path in counts)

    def wait_for_step(self, process, step):
        jobs.wait_until(lambda: self.begun() > step or process.poll() is not None)
        self.assertIsNone(process.poll(), "the job ended before both ranks were in step %d" % step)

    def test_signal(self):
        program = [TESTS + "e2e_window_job", "1000", "7000", "offset=1000", "free", "count=" + self.dir + "/count"]
        process = self.start(["--on-signal", "USR2", "--signal-steps", "12"], program)
        self.wait_for_step(process, 20)
        process.send_signal(signal.SIGUSR2)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)  # The signal's default action would have ended the job.
        self.assertIn("sum", out)
        steps = [r.steps for r in self.ranks()]
        self.assertEqual(len(steps[0]), 12, err)
        self.assertEqual(steps[0][0] % 100, 0)
        self.assertEqual(steps[0], steps[1])
        self.assertEqual(err.count("recording steps"), 1)

    def test_trigger_file_twice(self):
        program = [TESTS + "e2e_window_job", "1500", "7000", "offset=1000", "free", "count=" + self.dir + "/count"]
        process = self.start(["--trigger", "--signal-steps", "5", "--align", "10"], program)
        for step in (20, 500):  # The first window, of five steps, is over by then.
            self.wait_for_step(process, step)
            open(self.dir + "/out/trigger", "w").close()
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("to record: touch " + os.path.realpath(self.dir) + "/out/trigger", err)
        ranks = self.ranks()
        self.assertEqual(ranks[0].causes(), [(6, 6, 0)] * 2, err)
        self.assertEqual(ranks[0].steps, ranks[1].steps)
        self.assertEqual(len(ranks[0].steps), 10)
        self.assertFalse(os.path.exists(self.dir + "/out/trigger"))

    def test_without_steps_at_once(self):
        seconds = round(jobs.on_this_machine(0.5), 1)  # Time for some collectives.
        process = self.start(["--on-signal", "USR1", "--duration", "%g" % seconds],
                             [TESTS + "e2e_window_job", "%d" % (300 + seconds / 0.007), "7000", "nosteps", "count=" + self.dir + "/count"])
        self.wait_for_step(process, 20)
        process.send_signal(signal.SIGUSR1)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(err.count("no steps are marked: recording for %g s" % seconds), 1)
        for rank in self.ranks():
            self.assertEqual(rank.causes(), [(6, 6, 0)], err)
            length = rank.windows[0]["end_ns"] - rank.windows[0]["begin_ns"]
            self.assertTrue((seconds - 0.05) * 1e9 < length < seconds * 1e9 + late_ns(), length)
            self.assertGreater(rank.collectives, 10)


class Serving(Case):
    """N requests, served by eight threads."""

    def serve(self, options, mode, requests="60", us="1000"):
        self.run_it(options, [TESTS + "e2e_window_serve", mode, "8", requests, us])
        return self.ranks()[0]

    def check_hundred(self, rank):
        """A hundred requests, and those that others began while one of these was still served."""
        times = sorted(rank.times["request"])
        self.assertGreaterEqual(len(times), 100)
        last = max(end for _, end in times[:108])  # Whoever was the hundredth: eight threads begin in no strict order.
        self.assertTrue(all(begin <= last for begin, _ in times), rank.ranges)

    def test_range_count(self):
        rank = self.serve(["--range", "lockstep:request", "--range-count", "100"], "range")
        self.check_hundred(rank)
        self.assertEqual(rank.causes()[-1], (3, 3, 0))

    def test_nvtx(self):
        rank = self.serve(["--range", "nvtx:request", "--range-count", "100"], "nvtx")
        if "request" not in rank.ranges:
            self.skipTest("NVTX is not built in")
        self.check_hundred(rank)

    def test_another_source_does_not_count(self):
        rank = self.serve(["--range", "nvtx:request"], "range")
        self.assertEqual((rank.ranges, rank.windows), ({}, []))

    def test_step_range(self):
        rank = self.serve(["--step-range", "request", "--steps", "50:150"], "range")
        self.assertEqual(sorted(rank.steps), list(range(50, 150)))
        self.check_hundred(rank)
        self.assertEqual(rank.causes(), [(1, 1, 0)])

    def test_steps(self):
        rank = self.serve(["--steps", "100:200"], "step")
        self.assertEqual(rank.steps, list(range(100, 200)))
        self.assertEqual(rank.causes(), [(1, 1, 0)])

    def test_time(self):
        rank = self.serve(["--delay", "0.1", "--duration", "0.1"], "range", requests="300")
        self.assertEqual(rank.causes(), [(4, 4, 0)])
        self.assertGreater(rank.ranges["request"], 200)
        length = rank.windows[0]["end_ns"] - rank.windows[0]["begin_ns"]
        self.assertTrue(0.095e9 < length < 0.1e9 + late_ns(), length)

    def test_the_gap_before_a_step_range_is_part_of_it(self):
        self.run_it(["--step-range", "request", "--steps", "5:8"], [TESTS + "e2e_window_serve", "range", "1", "20", "1000"])
        rank = self.ranks()[0]
        self.assertEqual(rank.steps, [5, 6, 7])
        self.assertEqual(rank.ranges, {"request": 3, "work": 3})
        with rank_tables.open_file(self.dir + "/out/ranks/rank-00000.h5") as f:
            begin, end = f["steps/begin_ns"][:], f["steps/end_ns"][:]
            self.assertTrue((begin[1:] == end[:-1]).all())
            self.assertEqual(set(f["steps/source"][:]), {1})


class Cuda(Case):
    def test_profiler_calls(self):
        program = TESTS + "e2e_window_cuda"
        if not os.path.exists(program):
            self.skipTest("no CUDA runtime library to link with")
        bare = subprocess.run([program], capture_output=True, text=True)
        done = self.run_it(["--range", "cuda"], [program])
        self.assertEqual(done.stdout, bare.stdout)
        rank = self.ranks()[0]
        self.assertEqual(rank.steps, [5, 6, 7, 8, 9])
        self.assertEqual(rank.ranges, {"work": 5})
        self.assertEqual(rank.causes(), [(3, 3, 0)])

    def test_none_seen_is_said(self):
        done = self.run_it(["--range", "cuda"], ["true"])
        self.assertIn("cudaProfilerStart of a statically linked CUDA runtime cannot be seen", done.stderr)


class Limits(Case):
    def bulk(self, options, steps="1500", per="1000", us="300"):
        done = self.run_it(options, [TESTS + "e2e_window_serve", "bulk", steps, per, us])
        return self.ranks()[0], done

    def test_stops_at_a_boundary(self):
        # Slow enough that the sixteenth beyond the limit lasts until the next boundary on a busy machine too.
        rank, done = self.bulk(["--max-bytes", "8M"], steps="1600", per="200", us="2000")
        self.assertEqual(rank.causes(), [(0, 7, 1)])
        self.assertEqual(rank.losses, {"WindowCut": 1, "BytesLimit": 1})
        self.assertEqual(rank.cut_steps, 0)
        self.assertEqual(rank.ranges["work"], 200 * len(rank.steps))
        self.assertEqual(done.stderr.count("recording stops at the size limit"), 1)

    def test_without_steps_at_once(self):
        rank, _ = self.bulk(["--max-bytes", "4M"], steps="1", per="20000000", us="0")
        self.assertEqual(rank.causes(), [(0, 7, 1)])
        # 32 bytes each, a sixteenth beyond the limit at most.
        self.assertLess(rank.ranges["work"] * 32, 4.3 * 1024 * 1024)
        self.assertNotIn("SpoolBlock", rank.losses)

    def test_a_window_that_will_not_fit_is_told(self):
        rank, done = self.bulk(["--max-bytes", "16M", "--steps", "5:1400"])
        self.assertIn("steps 5:1400 will need about", done.stderr)
        self.assertEqual(rank.causes(), [(1, 7, 1)])

    def test_estimate(self):
        done = subprocess.run([LOCKSTEP, "run", "--estimate", "--steps", "100:1100", "--", TESTS + "e2e_window_serve",
                               "bulk", "100", "100", "2000"], cwd=self.dir, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(self.dir), [])
        row = [l.split() for l in done.stderr.splitlines() if l.startswith("lockstep:      0")][0]
        self.assertTrue(3200 <= int(row[3]) <= 3400, row)  # 100 ranges and a step, 32 bytes each.
        self.assertTrue(3.2 <= float(row[5]) <= 3.4 and row[6] == "MB", row)
        self.assertIn("enough", done.stderr)


if __name__ == "__main__":
    chosen = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    result = unittest.TextTestRunner(verbosity=2).run(chosen)
    if result.testsRun == len(result.skipped):
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
