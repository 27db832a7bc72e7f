"""NVTX and the environment of the application, end to end: check.py BUILD_DIR REAL CASE"""
import collections, glob, os, shutil, signal, struct, subprocess, sys, tempfile, unittest

BUILD = os.path.abspath(sys.argv[1])
REAL = sys.argv[2] == "1"  # Built with NVTX's own headers.
LOCKSTEP, TESTS = BUILD + "/lockstep", BUILD + "/tests/"
APP = [TESTS + "e2e_nvtx", TESTS + "libe2e_nvtx_loaded.so"]

if not os.path.exists(LOCKSTEP) or not os.path.exists(APP[0]):
    print("skipped: not built")
    sys.exit(77)
try:
    import h5py
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import rank_tables  # noqa: E402
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "SCOREP_")) and
         k not in ("LD_PRELOAD", "NVTX_INJECTION64_PATH", "PYTHONPATH")}


class File:
    """A rank file as plain Python."""

    def __init__(self, path):
        with rank_tables.open_file(path) as f:
            data = bytes(f["string_bytes/value"][:])
            self.texts = [data[o:o + n].decode() for o, n in zip(f["strings/offset_bytes"][:], f["strings/length_bytes"][:])]
            self.tables = {t: {c: f[t][c][:] for c in f[t]} for t in
                           ("ranges", "losses", "threads", "processes", "meta", "range_categories", "mpi_calls")}

    def text(self, id):
        return None if id == 0xffffffff else self.texts[id]

    def ranges(self):
        t = self.tables["ranges"]
        return [{c: (self.text(t[c][i]) if c in ("name", "domain") else int(t[c][i])) for c in t}
                for i in range(len(t["begin_ns"]))]

    def losses(self):
        t = self.tables["losses"]
        return {self.text(n): (int(c), self.text(d)) for n, c, d in zip(t["name"], t["count"], t["detail"])}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lockstep-e2e-")

    def tearDown(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def run_it(self, words, env=None, lockstep=LOCKSTEP, options=()):
        return subprocess.run([lockstep, "run", "--after", "none", *options, "--", *words], cwd=self.dir,
                              env={**CLEAN, **(env or {})}, capture_output=True, text=True, timeout=60)

    def files(self):
        run = os.path.realpath(self.dir + "/lockstep.out/latest")
        return [File(p) for p in sorted(glob.glob(run + "/ranks/*.h5"))]


def counts(ranges):
    return collections.Counter((r["name"], r["domain"], r["kind"]) for r in ranges if r["source"] == 1)


class Counts(Case):
    N = 300

    def expected(self):
        n = self.N
        all = {("constructor", None, 0): 1, ("categorised", None, 0): n, ("across threads", None, 1): n}
        for library in ("linked", "loaded"):
            all[(library + " literal", None, 0)] = n
            for i in range(5):
                all[("%s made at run time, number %04d" % (library, i), None, 0)] = n // 5
            if REAL:
                all[(library + " registered", library, 0)] = n
                all[("mark", library, 2)] = n
        return all

    def check(self, file, extra):
        ranges = file.ranges()
        self.assertEqual(counts(ranges), {**self.expected(), **extra})
        for r in ranges:
            if r["name"] == "across threads":
                self.assertGreater(r["duration_ns"], 0)
            if r["name"] == "categorised":
                self.assertEqual(struct.unpack("<d", struct.pack("<q", r["payload"])), (0.5,))
                self.assertEqual(r["payload_kind"], 2)
                self.assertIn((r["category_id"], r["category"]), ((4, 2), (5, 0)))  # 2: our own "forward".
            if r["name"].endswith(" registered") and r["payload"] != 0:
                self.assertEqual(r["payload_kind"], 1)
        t = file.tables["range_categories"]
        self.assertEqual({(int(i), file.text(n)) for i, n in zip(t["category_id"], t["name"])},
                         {(4, "forward"), (5, "something else")})

    def test_every_record_is_there(self):
        plain = subprocess.run(APP + [str(self.N)], env=CLEAN, capture_output=True, text=True)
        done = self.run_it(APP + [str(self.N)])
        self.assertEqual((done.returncode, done.stdout), (plain.returncode, plain.stdout), done.stderr)
        main, child = self.files()
        self.check(main, {("at exit", None, 0): 1})
        self.assertEqual(counts(child.ranges()), {("child", None, 0): 1})
        for file in (main, child):
            self.assertEqual(set(file.losses()) & {"RingFull", "RangeUnbalanced", "RangeOpen", "UnknownRecord"}, set())

    def test_exit_without_handlers(self):
        self.assertEqual(self.run_it(APP + [str(self.N), "_exit"]).returncode, 0)
        self.check(self.files()[0], {})

    def test_killed(self):
        done = self.run_it(APP + [str(self.N), "kill"])
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        run = glob.glob(self.dir + "/lockstep.out/2*")[0]
        subprocess.run([LOCKSTEP, "recover", run] if self.knows("recover") else [LOCKSTEP, "merge", run], env=CLEAN,
                       capture_output=True, timeout=60)
        file = File(sorted(glob.glob(run + "/ranks/*.h5"))[0])
        self.check(file, {("open", None, 0): 1, ("open start/end", None, 1): 1})
        self.assertEqual({r["name"] for r in file.ranges() if r["open"]}, {"open", "open start/end"})
        self.assertEqual(file.losses()["RangeOpen"][0], 2)

    def knows(self, command):
        return command in subprocess.run([LOCKSTEP, "--help"], capture_output=True, text=True).stdout


class Tools(Case):
    def test_another_tool_has_nvtx(self):
        other = self.dir + "/libother.so"
        done = self.run_it(APP + ["5"], {"NVTX_INJECTION64_PATH": other})
        self.assertEqual(done.returncode, 0)
        said = [l for l in done.stderr.splitlines() if "NVTX" in l]
        self.assertEqual(len(said), 1, done.stderr)
        self.assertIn(other, said[0])
        file = self.files()[0]
        self.assertEqual(counts(file.ranges()), {})
        count, detail = file.losses()["SourceRefused"]
        self.assertEqual(count, 1)
        self.assertIn(other, detail)
        env = self.run_it(["env"], {"NVTX_INJECTION64_PATH": other})
        self.assertIn("NVTX_INJECTION64_PATH=" + other + "\n", env.stdout)

    def test_another_tool_has_mpi(self):
        tool = TESTS + "libe2e_nvtx_mpi_tool.so"
        done = self.run_it(["env"], {"LD_PRELOAD": tool})
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("not recorded", done.stderr)
        env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        self.assertTrue(env["LD_PRELOAD"].startswith(tool + ":" + BUILD + "/liblockstep.so"), env["LD_PRELOAD"])

    def test_environment(self):
        done = self.run_it(["env"], {"PYTHONPATH": "/a:/b", "LD_PRELOAD": "libm.so.6"})
        env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        self.assertEqual(env["NVTX_INJECTION64_PATH"], BUILD + "/liblockstep.so")
        self.assertTrue(env["LD_PRELOAD"].startswith("libm.so.6:" + BUILD + "/liblockstep.so"), env["LD_PRELOAD"])
        if os.path.isdir(BUILD + "/python"):
            self.assertEqual(env["PYTHONPATH"], BUILD + "/python:/a:/b")

    def test_run_inside_run(self):
        done = self.run_it([LOCKSTEP, "run", "--after", "none", "--", *APP, "7"])
        self.assertEqual((done.returncode, done.stdout), (0, "done 7\n"))
        self.assertEqual(done.stderr.count("already records this program"), 1, done.stderr)
        self.assertEqual(len(glob.glob(self.dir + "/lockstep.out/2*")), 1)
        ranges = [r for file in self.files() for r in file.ranges()]
        self.assertEqual(counts(ranges)[("categorised", None, 0)], 7)

    def test_directory_with_space_and_colon(self):
        place = self.dir + "/a b:c"
        os.mkdir(place)
        for name in ("lockstep", "liblockstep.so", "liblockstep-mpi.so"):
            if os.path.exists(BUILD + "/" + name):
                shutil.copy2(BUILD + "/" + name, place)
        before = set(glob.glob("/dev/shm/lockstep-lib-*") + glob.glob("/tmp/lockstep-lib-*"))
        done = self.run_it(APP + ["5"], lockstep=place + "/lockstep")
        self.assertEqual((done.returncode, done.stdout), (0, "done 5\n"), done.stderr)
        self.assertNotIn("cannot be preloaded", done.stderr)
        self.assertEqual(counts(self.files()[0].ranges())[("categorised", None, 0)], 5)
        self.assertEqual(set(glob.glob("/dev/shm/lockstep-lib-*") + glob.glob("/tmp/lockstep-lib-*")) - before, set())


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
