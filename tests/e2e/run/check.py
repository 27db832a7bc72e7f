"""End-to-end checks of `lockstep run`: check.py BUILD_DIR CASE"""
import glob, json, os, re, shutil, signal, struct, subprocess, sys, tempfile, time, unittest

BUILD = os.path.abspath(sys.argv[1])
LOCKSTEP = BUILD + "/lockstep"
TESTS = BUILD + "/tests/"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]


def have(*programs):
    return all(os.path.exists(p) or shutil.which(p) for p in programs)


if not have(LOCKSTEP, TESTS + "e2e_marker"):
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


def run(words, cwd, env=None, timeout=120, **more):
    full = dict(os.environ, **(env or {}))
    begin = time.monotonic()
    done = subprocess.run(words, cwd=cwd, env=full, capture_output=True, text=True, timeout=timeout, **more)
    done.seconds = time.monotonic() - begin
    return done


def texts(h5):
    data = bytes(h5["string_bytes/value"][:])
    return [data[o:o + n].decode() for o, n in zip(h5["strings/offset_bytes"][:], h5["strings/length_bytes"][:])]


def meta(h5):
    t = texts(h5)
    return {t[k]: t[v] for k, v in zip(h5["meta/key"][:], h5["meta/value"][:])}


def losses(h5):
    t = texts(h5)
    return {t[n]: int(c) for n, c in zip(h5["losses/name"][:], h5["losses/count"][:])}


def committed(path):
    """What the program has written; 0 before there is a file, and before it has its length."""
    try:
        with open(path, "rb") as f:
            written = f.read(8)
    except FileNotFoundError:
        return 0
    return struct.unpack("<Q", written)[0] if len(written) == 8 else 0


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-e2e-")
        self.shm = set(glob.glob("/dev/shm/lockstep-*"))

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def latest(self):
        return str(jobs.newest(self.dir + "/lockstep.out"))

    def no_segment_left(self, run_dir):
        left = [p for p in glob.glob("/dev/shm/lockstep-*") if p not in self.shm]
        mine = [p for p in left if self.run_hash(run_dir) in p]
        self.assertEqual(mine, [])

    def run_hash(self, run_dir):
        links = glob.glob(os.path.dirname(run_dir) + "/.id-*")
        return next((os.path.basename(l)[4:20] for l in links if os.path.realpath(l) == run_dir), "?")

    def finish(self, run_dir):
        """What the next command does first."""
        return int(run([TESTS + "e2e_decode_spool", run_dir], self.dir).stdout)


class Mpirun(Case):
    """The program, its output and mpirun's words are the same with and without."""

    def setUp(self):
        super().setUp()
        if not have("mpirun", TESTS + "e2e_ending"):
            self.skipTest("no Open MPI")

    @staticmethod
    def plain(text):
        # Process ids, times and PMIx's own warnings differ from run to run.
        return re.sub(r"\d+", "N", text)

    def job(self, program):
        # Open MPI 4.1.4 itself now and then garbles the message of MPI_Abort (3 of 40 runs of the bare program).
        for _ in range(5):
            done = run(MPIRUN + ["-np", "4"] + program, self.dir)
            if "ORTE_ERROR_LOG" not in done.stderr:
                break
        return done

    def compare(self, mode, code):
        program = [TESTS + "e2e_ending", mode]
        without = self.job(program)
        for _ in range(3):  # What is always slow is slow each time; the machine is not.
            with_it = self.job([LOCKSTEP, "run", "--quiet", "--after", "none", "--"] + program)
            if with_it.seconds < without.seconds + 2:
                break
        self.assertEqual(without.returncode, code, without.stderr)
        self.assertEqual(with_it.returncode, code, with_it.stderr)
        self.assertEqual(sorted(with_it.stdout.splitlines()), sorted(without.stdout.splitlines()))
        self.assertEqual(self.plain(with_it.stderr), self.plain(without.stderr))
        # The promise is 0.5 s.
        self.assertLess(with_it.seconds, without.seconds + jobs.on_this_machine(2))
        return self.latest()

    def test_good_end(self):
        run_dir = self.compare("well", 0)
        self.assertEqual(sorted(os.listdir(run_dir)), ["manifest.json", "ranks"])
        manifest = json.load(open(run_dir + "/manifest.json"))
        self.assertEqual(manifest["schema"], "lockstep.manifest/1")
        self.assertEqual(manifest["world_size"], 4)
        self.assertEqual(manifest["launcher"], "open-mpi")
        for rank in range(4):
            with rank_tables.open_file("%s/ranks/rank-%05d.h5" % (run_dir, rank)) as f:
                self.assertEqual(meta(f)["rank"], str(rank))
                self.assertEqual(meta(f)["exit_code"], "0")
                self.assertEqual(len(f["collectives/seq"]), 22)  # With MPI_Finalize.
                self.assertEqual(losses(f), {})
        self.assertEqual(glob.glob(run_dir + "/ranks/*.spool"), [])
        self.no_segment_left(run_dir)

    def test_return_code(self):
        self.compare("return4", 4)

    def after_failure(self, mode, code, victim):
        run_dir = self.compare(mode, code)
        self.assertEqual(self.finish(run_dir), 4)
        for rank in range(4):
            with rank_tables.open_file("%s/ranks/rank-%05d.h5" % (run_dir, rank)) as f:
                facts = meta(f)
                self.assertEqual(len(f["collectives/seq"]), 21)
                if rank == 1:
                    self.assertEqual((facts["exit_code"], facts["exit_signal"]), victim)
        self.no_segment_left(run_dir)

    def test_exit_three(self):
        self.after_failure("exit3", 3, ("3", ""))

    def test_signal(self):
        self.after_failure("segv", 139, ("0", "11"))

    def test_kill(self):
        self.after_failure("kill", 137, ("0", "9"))

    def test_abort(self):
        self.after_failure("abort", 5, ("5", ""))


class Deaths(Case):
    """kill -9 of the application, of the agent, of both."""

    def start(self, *options, marks="100000000", pause="200"):
        process = subprocess.Popen([LOCKSTEP, "run", "--quiet", "--after", "none"] + list(options) +
                                   ["--", TESTS + "e2e_marker", "n", marks, pause], cwd=self.dir)
        self.assertTrue(jobs.wait_until(lambda: committed(self.dir + "/n") >= 20000))
        return process

    def marks(self, run_dir):
        with rank_tables.open_file(run_dir + "/ranks/rank-00000.h5") as f:
            return len(f["ranges/begin_ns"]), losses(f)

    def test_application_killed(self):
        process = self.start()
        os.kill(jobs.program_of(process), signal.SIGKILL)
        self.assertEqual(process.wait(timeout=120), -signal.SIGKILL)
        run_dir = self.latest()
        self.assertEqual(glob.glob(run_dir + "/ranks/*.h5"), [])
        self.assertEqual(self.finish(run_dir), 1)
        found, lost = self.marks(run_dir)
        # The mark is committed before the count says so.
        self.assertIn(found - committed(self.dir + "/n"), (0, 1))
        self.assertEqual(lost, {})
        with rank_tables.open_file(run_dir + "/ranks/rank-00000.h5") as f:
            self.assertEqual((int(f.attrs["complete"]), int(f.attrs["recovered"])), (1, 1))
        self.assertEqual(glob.glob(run_dir + "/ranks/*.spool"), [])
        self.assertEqual(self.finish(run_dir), 0)

    def test_agent_killed_application_goes_on(self):
        process = self.start(marks="60000")
        os.kill(jobs.agent_of(process), signal.SIGKILL)
        self.assertEqual(process.wait(timeout=120), 0)
        run_dir = self.latest()
        self.assertEqual(committed(self.dir + "/n"), 60000)
        self.assertEqual(self.finish(run_dir), 1)
        found, lost = self.marks(run_dir)
        dropped = lost.get("RingFull", 0)
        self.assertEqual(found + dropped, 60000)
        # Everything the ring had room for after the agent died is there.
        self.assertEqual(dropped, 0)

    def test_everything_killed(self):
        process = self.start()
        app, agent = jobs.program_of(process), jobs.agent_of(process)
        for pid in (process.pid, agent, app):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        while os.path.exists("/proc/%d" % app) and "Z" not in open("/proc/%d/stat" % app).read().split()[2]:
            time.sleep(0.02)
        run_dir = self.latest()
        self.assertEqual(self.finish(run_dir), 1)
        found, lost = self.marks(run_dir)
        self.assertIn(found + lost.get("RingFull", 0) - committed(self.dir + "/n"), (0, 1))
        self.assertEqual([p for p in glob.glob("/dev/shm/lockstep-*-%d" % agent)], [])

    def test_a_running_spool_is_left_alone(self):
        process = self.start()
        try:
            self.assertEqual(self.finish(self.latest()), 0)
            self.assertEqual(len(glob.glob(self.latest() + "/ranks/*.spool")), 1)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


class Places(Case):
    """Directories, disks and limits."""

    def test_output_directory_and_its_second(self):
        for expected in ("out", "out-2"):
            done = run([LOCKSTEP, "run", "--after", "none", "-o", "out", "--", "true"], self.dir)
            self.assertEqual(done.returncode, 0)
            self.assertTrue(os.path.exists(self.dir + "/" + expected + "/ranks/rank-00000.h5"), done.stderr)
        self.assertIn("out holds another run: this one goes to out-2", done.stderr)
        done = run([LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--", "true"], self.dir)
        self.assertEqual(done.stderr.strip(), "lockstep: out holds another run: this one goes to out-3")

    def test_unwritable_output_falls_back_once(self):
        os.mkdir(self.dir + "/tmp")
        done = run([LOCKSTEP, "run", "--after", "none", "-o", "/proc/lockstep", "--", "echo", "x"], self.dir,
                   env={"TMPDIR": self.dir + "/tmp"})
        self.assertEqual((done.returncode, done.stdout), (0, "x\n"))
        self.assertEqual(done.stderr.count("cannot be written"), 1)
        self.assertEqual(len(glob.glob(self.dir + "/tmp/lockstep.out-*/*/ranks/rank-00000.h5")), 1)

    def test_nothing_writable_runs_untraced(self):
        done = run([LOCKSTEP, "run", "-o", "/proc/lockstep", "--", "bash", "-c", "echo x; exit 6"], self.dir,
                   env={"TMPDIR": "/proc/absent"})
        self.assertEqual((done.returncode, done.stdout), (6, "x\n"))
        self.assertIn("runs without Lockstep", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_a_program_that_removes_its_run_directory(self):
        for code in (0, 4):
            done = run([LOCKSTEP, "run", "--", "bash", "-c", f"rm -rf lockstep.out; echo x; exit {code}"], self.dir)
            self.assertEqual((done.returncode, done.stdout), (code, "x\n"))
            self.assertRegex(done.stderr, r"^lockstep: lockstep\.out/\S+ was removed while the job ran: nothing is left of "
                             r"the recording\. Name a directory that the job leaves alone with --output\n$")
            self.assertFalse(os.path.exists(self.dir + "/lockstep.out"))

    def test_a_program_that_drops_the_preload(self):
        code = "import os,sys,time\nn=0\nwhile not n: n=os.path.exists('go'); time.sleep(.01)"
        with subprocess.Popen([LOCKSTEP, "run", "--after", "none", "-q", "-o", "run", "--", "bash", "-c",
                               f'unset LD_PRELOAD; exec /usr/bin/python3 -c "{code}"'], cwd=self.dir) as job:
            spool = self.dir + "/run/ranks/rank-00000.spool"
            sizes = set()  # The agent samples as often as it looks at the program.
            jobs.wait_until(lambda: os.path.exists(spool) and sizes.add(os.path.getsize(spool)) or len(sizes) > 5)
            open(self.dir + "/go", "w").close()
            self.assertEqual(job.wait(60), 0)
        with rank_tables.open_file(self.dir + "/run/ranks/rank-00000.h5") as f:
            self.assertEqual(losses(f).get("PreloadLost"), 1)

    def test_more_room_for_rings_than_there_is(self):
        # No room at all: tests/e2e/faults, which can mount a small one.
        done = run([LOCKSTEP, "run", "--after", "none", "--ring-total", "4096G", "--", "echo", "x"], self.dir)
        self.assertEqual((done.returncode, done.stdout), (0, "x\n"))
        self.assertNotIn("without Lockstep", done.stderr)
        room = os.statvfs("/dev/shm")
        with rank_tables.open_file(self.latest() + "/ranks/rank-00000.h5") as f:
            self.assertLess(int(meta(f)["ring_bytes"]), room.f_blocks * room.f_frsize)

    def test_max_bytes(self):
        done = run([LOCKSTEP, "run", "--quiet", "--after", "none", "--max-bytes", "1M", "--", TESTS + "e2e_marker", "n",
                    "400000", "500"], self.dir)
        self.assertEqual(done.returncode, 0)
        with rank_tables.open_file(self.latest() + "/ranks/rank-00000.h5") as f:
            found, lost = len(f["ranges/begin_ns"]), losses(f)
        self.assertEqual(lost.get("BytesLimit"), 1)
        self.assertGreater(found, 20000)
        self.assertLess(found, 400000)
        self.assertEqual(committed(self.dir + "/n"), 400000)

    def tmpfs(self, size):
        path = tempfile.mkdtemp(prefix="lockstep-tmpfs-")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + size, "tmpfs", path], capture_output=True).returncode:
            os.rmdir(path)
            self.skipTest("mounting needs root")
        self.addCleanup(lambda: (subprocess.run(["umount", "-l", path]), os.rmdir(path)))
        return path

    def test_full_disk(self):
        disk = self.tmpfs("2m")
        done = run([LOCKSTEP, "run", "--after", "none", "--spool-dir", disk, "--", TESTS + "e2e_marker", "n", "300000",
                    "500"], self.dir)
        self.assertEqual(done.returncode, 0)
        self.assertIn("records lost, the spool could not be written", done.stderr)
        with rank_tables.open_file(self.latest() + "/ranks/rank-00000.h5") as f:
            found, lost = len(f["ranges/begin_ns"]), losses(f)
        self.assertGreater(found, 1000)
        # An agent that a busy machine keeps from running loses some in the ring too.
        self.assertGreaterEqual(found + lost["SpoolWrite"] + lost.get("RingFull", 0), 300000)
        self.assertEqual(os.listdir(disk), [])

    def test_read_only_directory(self):
        disk = self.tmpfs("1m")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        os.mkdir(self.dir + "/tmp")
        done = run([LOCKSTEP, "run", "--after", "none", "--", "true"], disk, env={"TMPDIR": self.dir + "/tmp"})
        self.assertEqual(done.returncode, 0)
        self.assertIn("lockstep.out cannot be written (Read-only file system)", done.stderr)


class OuterForm(Case):
    """lockstep run -- mpirun ... app"""

    def setUp(self):
        super().setUp()
        if not have("mpirun", TESTS + "e2e_ending"):
            self.skipTest("no Open MPI")

    def job(self, *words):
        done = run([LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "out", "--"] + list(words), self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(os.path.basename(p) for p in glob.glob(self.dir + "/out/ranks/*.h5")), done

    def test_options_of_mpirun(self):
        os.mkdir(self.dir + "/work")
        files, done = self.job(*MPIRUN, "-np", "2", "-mca", "btl", "self,vader", "-x", "A=1", "--bind-to", "none",
                               "-wdir", self.dir + "/work", "--tag-output", "bash", "-c", "echo $A $PWD")
        self.assertEqual(files, ["rank-00000.h5", "rank-00001.h5"])
        self.assertEqual(done.stdout.count("1 " + self.dir + "/work"), 2)

    def test_two_programs(self):
        files, done = self.job(*MPIRUN, "-np", "1", TESTS + "e2e_ending", "well", ":", "-np", "2", TESTS + "e2e_ending")
        self.assertEqual(files, ["rank-00000.h5", "rank-00001.h5", "rank-00002.h5"])
        self.assertEqual(done.stdout.count("sum 3"), 3)

    def test_unknown_option_is_refused_before_anything_runs(self):
        done = run([LOCKSTEP, "run", "--", "mpirun", "--frobnicate", "3", "true"], self.dir)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--frobnicate", done.stderr)
        self.assertEqual(os.listdir(self.dir), [])


if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]]))
    if result.testsRun == len(result.skipped):
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
