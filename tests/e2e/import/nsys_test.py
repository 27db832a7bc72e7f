"""Reports of Nsight Systems through `lockstep import` and `analyze`: nsys_test.py BUILD_DIR [-v] CASE

The files are made of runs that make_run simulates, so what must come back is known: the same run recorded, or imported
from Kineto's traces of it, is what they are held against.
"""

import csv
import io
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
LOCKSTEP, MAKE_RUN = str(BUILD / "lockstep"), str(BUILD / "make_run")
if not os.path.exists(LOCKSTEP):
    print("skipped: lockstep is not built")
    sys.exit(77)
try:
    import h5py  # noqa: F401
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402
import nsys_files  # noqa: E402

MPI = """
ranks 4
steps 10
network alpha=20us bandwidth=5GB/s
slow rank=2 factor=1.3
step
  forward 6ms
  backward 12ms buckets=1MiB,4MiB
  waitall
  allreduce 4kB
  send 64kB to=2 as=x on=2:0
  recv x on=2:1
  optimizer 2ms
end
"""
BLOCKING = """
ranks 4
steps 10
network alpha=20us bandwidth=5GB/s
late rank=1 by=4ms
step
  compute 10ms name=work
  allreduce 1MiB
  barrier
end
"""
GPU = """
ranks 4
steps 10
gpu
network alpha=20us bandwidth=50GB/s
slow rank=2 factor=1.2
step
  input 1ms
  copy h2d 1MiB
  ddp buckets=4MiB,8MiB forward=5ms backward=10ms
  push optimizer category=optimizer
  kernel 1ms name=adam
  pop
  sync
end
"""
TERMS = ("compute_ns", "blocked_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns")


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-nsys-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def lockstep(self, *words, code=0, **more):
        done = subprocess.run([LOCKSTEP, *map(str, words)], cwd=self.dir, capture_output=True, text=True, timeout=120,
                              errors="surrogateescape", env={**jobs.ENVIRONMENT, **more})
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def simulated(self, spec, name="sim", *options):
        (self.dir / (name + ".run")).write_text(spec)
        subprocess.run([MAKE_RUN, name + ".run", name, *options], cwd=self.dir, check=True, capture_output=True)
        return {int(path.stem[5:]): jobs.RankFile(path) for path in sorted((self.dir / name / "ranks").glob("rank-*.h5"))}

    def files(self, ranks, folder="in", name="report_rank%d.sqlite", **how):
        (self.dir / folder).mkdir(exist_ok=True)
        return [nsys_files.write(str(self.dir / folder / (name % rank)), {rank: run}, pid=5000 + 10 * rank,
                                 host="node%d" % rank, **how) for rank, run in ranks.items()]

    def imported(self, *files, code=0, run="run", options=()):
        self.done = self.lockstep("import", *files, "-o", run, *options, code=code)
        return {int(path.stem[5:]): jobs.RankFile(path) for path in sorted((self.dir / run / "ranks").glob("rank-*.h5"))}

    def analysis(self, *words, code=0):
        return json.loads(self.lockstep("analyze", *words, "--json", "-", code=code).stdout)

    def losses(self, analysis):
        found = {}
        for row in analysis["losses"]:
            found[row["name"]] = found.get(row["name"], 0) + row["count"]
        return found


class Content(Case):
    """What the tables hold, row by row, in every version of the schema."""

    def same(self, of, to, table, columns, offset=0, where=None):
        def rows(file, shift):
            data = file.tables[table]
            keep = range(file.rows(table)) if where is None else [i for i in range(file.rows(table)) if where(file, i)]
            return sorted(tuple(file.text(data[c][i]) if c in ("name", "domain") else
                                int(data[c][i]) + (shift if c in ("begin_ns", "time_ns") else 0) for c in columns)
                          for i in keep)
        self.assertEqual(rows(of, 0), rows(to, offset), table)

    def test_gpu(self):
        ranks = self.simulated(GPU)
        for style in ("2021", "2022", "2024", "2025"):
            files = self.imported(*self.files(ranks, folder=style, style=style), run="run-" + style)
            self.assertEqual(sorted(files), [0, 1, 2, 3])
            for rank, file in files.items():
                was = ranks[rank]
                self.same(file, was, "kernels", ("begin_ns", "duration_ns", "device", "context", "stream", "correlation",
                                                 "name", "vendor"), nsys_files.WALL)
                self.same(file, was, "copies", ("begin_ns", "duration_ns", "device", "stream", "correlation", "kind",
                                                "bytes", "asynchronous", "source_device", "destination_device"),
                          nsys_files.WALL)
                self.same(file, was, "sync", ("begin_ns", "duration_ns", "kind", "stream", "correlation", "event"),
                          nsys_files.WALL, lambda f, i: int(f.column("sync", "kind")[i]) != 5)
                self.same(file, was, "api", ("begin_ns", "duration_ns", "kind", "correlation"), nsys_files.WALL)
                self.same(file, was, "steps", ("index", "begin_ns", "complete"), nsys_files.WALL)
                self.same(file, was, "collectives", ("begin_ns", "kind", "bytes", "mode"), nsys_files.WALL)
                self.same(file, was, "devices", ("device", "memory_bytes", "sm_count", "max_threads_per_sm",
                                                 "compute_major", "name"))
                self.assertEqual(list(file.column("steps", "source")), [1] * 10)
                self.assertEqual([(int(k), int(s)) for k, s in zip(file.column("comms", "kind"),
                                                                   file.column("comms", "size"))], [(3, 4)])
                ranges = file.ranges
                for name, count in was.ranges.items():
                    self.assertEqual(ranges[name], count)
                self.assertEqual({int(c) for n, c in zip(file.column("ranges", "name"), file.column("ranges", "category"))
                                  if file.text(n) == "optimizer"}, {4})
                self.assertEqual(file.meta["imported"], "nsys")
                self.assertEqual(file.meta["host"], "node%d" % rank)
                self.assertEqual(file.executables, ["python3"])
                self.assertEqual([int(t) for t in file.column("threads", "training")].count(1), 1)

    def test_mpi(self):
        ranks = self.simulated(MPI)
        for style in ("2024", "2025"):
            files = self.imported(*self.files(ranks, folder=style, style=style), run="run-" + style)
            for rank, file in files.items():
                was = ranks[rank]
                self.assertEqual(file.calls, was.calls)
                self.same(file, was, "mpi_calls", ("begin_ns", "duration_ns", "op"), nsys_files.WALL)
                # Completions come back by their request handles, which are used again and again.
                for table in ("collectives", "p2p"):
                    self.same(file, was, table, ("begin_ns", "bytes", "mode"), nsys_files.WALL)
                    for column in ("wait_begin_ns", "end_ns", "post_end_ns"):
                        self.assertEqual([int(t) for t in file.column(table, column)],
                                         [int(t) + nsys_files.WALL for t in was.column(table, column)], column)
                self.same(file, was, "p2p", ("direction", "peer", "tag", "seq", "peer_world_rank"))
                self.assertEqual(file.losses, {})

    def test_mpi_as_ranges(self):
        """Before there were tables: names and times, and nothing that is made up for the rest."""
        ranks = self.simulated(MPI)
        files = self.imported(*self.files(ranks, style="2022"))
        for rank, file in files.items():
            self.assertEqual(file.calls, ranks[rank].calls)
            self.assertEqual(file.meta["rank"], str(rank))
            self.assertEqual(set(map(int, file.column("collectives", "bytes"))), {0})
            self.assertEqual(file.losses["ImportRequestUnknown"], 20)
            self.assertEqual(file.losses["ImportGroupUnknown"], 30)
            posted = [int(e) for e, m in zip(file.column("collectives", "end_ns"), file.column("collectives", "mode")) if m]
            self.assertEqual(set(posted), {nsys_files.NO_TIME})
            self.assertNotIn("MPI_Iallreduce", file.ranges)


class Verdict(Case):
    """What analysis makes of it is what it makes of the recorded run."""

    def compare(self, spec, code=0, **how):
        ranks = self.simulated(spec)
        self.files(ranks, **how)
        recorded, imported = self.analysis("sim"), self.analysis("in", code=code)
        self.assertEqual(recorded["run"]["ranks"], imported["run"]["ranks"])
        self.assertEqual([s["index"] for s in recorded["steps"]], [s["index"] for s in imported["steps"]])
        return recorded, imported

    def stragglers(self, analysis):
        return [(s["rank"], s["kind"]) for s in analysis["stragglers"]]

    def near(self, recorded, imported, terms):
        for a, b in zip(recorded["ranks"], imported["ranks"]):
            for term in terms:
                self.assertAlmostEqual(a[term], b[term], delta=2000 + a["span_ns"] // 1000, msg=(a["rank"], term))

    def test_mpi_straggler_and_waits(self):
        recorded, imported = self.compare(MPI)
        self.assertEqual([s[0] for s in self.stragglers(imported)], [2])
        self.assertEqual(self.stragglers(recorded), self.stragglers(imported))
        self.near(recorded, imported, TERMS)

    def test_blocking_waits(self):
        recorded, imported = self.compare(BLOCKING)
        self.near(recorded, imported, TERMS)
        self.assertGreater(imported["ranks"][0]["exposed_wait_ns"], 35_000_000)

    def test_every_kind_of_call(self):
        spec = """
ranks 3
steps 6
network alpha=20us bandwidth=5GB/s
slow rank=1 factor=1.4
comm all block=3
step
  compute 5ms
  ring 1MiB
  iallgather 96kB as=g
  compute 3ms
  wait g
  reducescatter 96kB
  bcast 32kB root=1
  allreduce 8kB comm=all
end
"""
        recorded, imported = self.compare(spec)
        # Which of MPI_Sendrecv's partners is told is not known, so its waiting is not.
        unknown = ("exposed_wait_ns", "exposed_unsplit_ns", "idle_ns")
        self.near(recorded, imported, [term for term in TERMS if term not in unknown])
        for a, b in zip(recorded["ranks"], imported["ranks"]):
            self.assertAlmostEqual(sum(a[term] for term in unknown), sum(b[term] for term in unknown), delta=100_000)
        size = lambda a: {c["op"]: c["bytes"] for c in a["collectives"]}
        self.assertEqual(size(recorded), size(imported))
        self.assertEqual(self.losses(imported)["ImportCategorySkipped"], 18)

    def test_gpu_straggler_as_from_kineto(self):
        recorded, imported = self.compare(GPU)
        self.simulated(GPU, "kineto", "--kineto", "nccl=seq")
        kineto = self.analysis("kineto")
        self.assertEqual([s[0] for s in self.stragglers(imported)], [2])
        self.assertEqual(self.stragglers(kineto), self.stragglers(imported))
        for a, b in zip(kineto["ranks"], imported["ranks"]):
            for term in ("compute_ns", "copy_ns", "comm_ns", "overlap_ns"):
                self.assertEqual(a[term], b[term], (a["rank"], term))
        self.near(kineto, imported, TERMS)
        self.near(recorded, imported, ("compute_ns", "exposed_copy_ns"))

    def test_without_payload(self):
        """NCCL's ranges without what they carry, or only its kernels: kinds and waits, no sizes."""
        ranks = self.simulated(GPU)
        self.files(ranks, folder="a")
        known = self.analysis("a")
        for folder, nccl in (("b", "ranges"), ("c", "none")):
            self.files(ranks, folder=folder, nccl=nccl)
            found = self.analysis(folder)
            self.assertEqual([s["rank"] for s in found["stragglers"]], [2])
            self.assertEqual({c["op"] for c in found["collectives"]}, {"all-reduce"})
            self.assertGreater(self.losses(found)["ImportGroupUnknown"], 0)
            for a, b in zip(known["ranks"], found["ranks"]):
                self.assertEqual(a["comm_ns"], b["comm_ns"])

    def test_offset_clocks(self):
        """Hosts whose wall clocks differ by milliseconds: the collectives' ends bound them."""
        spec = GPU.replace("step\n", "clock rank=1 offset=3ms\nclock rank=3 offset=-2ms\nstep\n", 1)
        _, imported = self.compare(spec)
        self.assertEqual([s[0] for s in self.stragglers(imported)], [2])
        self.assertLess(imported["trust"]["clock_error_ns_max"], 1_000_000)
        self.assertEqual(self.losses(imported).get("ClockViolation", 0), 0)


class Ranks(Case):
    """Which rank a file, or a process in it, is."""

    def setUp(self):
        super().setUp()
        self.ranks = self.simulated(GPU.replace("steps 10", "steps 3"))

    def check(self, files, code=0, **more):
        read = self.imported(*files, code=code, **more)
        self.assertEqual(sorted(read), [0, 1, 2, 3])
        for rank, file in read.items():
            first = int(min(file.column("kernels", "begin_ns"))) - nsys_files.WALL
            self.assertEqual(first, int(min(self.ranks[rank].column("kernels", "begin_ns"))), rank)
            self.assertEqual(int(sum(file.column("kernels", "duration_ns"))),
                             int(sum(self.ranks[rank].column("kernels", "duration_ns"))), rank)
        return read

    def test_by_mpi_whatever_the_name(self):
        for rank, run in self.ranks.items():
            nsys_files.write(str(self.dir / "in" / ("rank_%d.sqlite" % (3 - rank))), {rank: run})
        files = self.check(["in"])
        self.assertEqual({f.meta["rank_source"] for f in files.values()}, {"env"})

    def test_by_environment(self):
        for variable, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"),
                               ("RANK", "WORLD_SIZE")):
            shutil.rmtree(self.dir / "in", ignore_errors=True)
            for rank, run in self.ranks.items():
                nsys_files.write(str(self.dir / "in" / ("report%d.sqlite" % (9 - rank))), {rank: run}, told=False,
                                 environment="A=b\n%s=%d\n%s=4" % (variable, rank, size))
            self.check(["in"], options=["--force"])

    def test_by_name(self):
        for pattern in ("report.%d.sqlite", "job_host_%d.sqlite", "x_rank%d.sqlite", "rank_%d/report.sqlite"):
            shutil.rmtree(self.dir / "in", ignore_errors=True)
            for rank, run in self.ranks.items():
                nsys_files.write(str(self.dir / "in" / (pattern % rank)), {rank: run}, told=False)
            files = self.check(["in"], options=["--force"])
            self.assertEqual(files[0].losses["ImportRankInferred"], 1)
            self.assertIn("4 imported traces that do not state their rank", self.done.stdout)

    def test_several_processes_in_a_file(self):
        """nsys outside mpirun: one session, one clock."""
        nsys_files.write(str(self.dir / "in" / "all.sqlite"), self.ranks)
        files = self.check(["in"])
        self.assertEqual(len({f.meta["clock_domain"] for f in files.values()}), 1)
        self.assertEqual([len(f.executables) for f in files.values()], [1] * 4)
        found = self.analysis("run")
        self.assertEqual(found["trust"]["clock_error_ns_max"], 0)
        # Without their numbers: in the order of their process ids, whatever number the file has.
        nsys_files.write(str(self.dir / "two" / "rank_7.sqlite"), self.ranks, told=False)
        self.check(["two"], run="two-run")

    def test_processes_that_are_no_ranks(self):
        """Helpers beside the ranks: left out, and counted."""
        files = self.files(self.ranks)
        db = sqlite3.connect(files[2])
        for i in range(7):
            db.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (?, ?, 59, 'x', ?)",
                       (i * 10, i * 10 + 5, nsys_files.global_id(99 + i % 2, 99)))
        db.commit()
        db.close()
        read = self.check(["in"])
        self.assertEqual(read[2].losses["ImportCategorySkipped"], 7)
        self.assertNotIn("ImportCategorySkipped", read[1].losses)
        self.assertNotIn("x", read[2].ranges)

    def test_ranks_whose_gpu_was_not_captured(self):
        """Steps and launches make a process a rank; its missing kernels are said."""
        path = nsys_files.write(str(self.dir / "in" / "all.sqlite"), self.ranks, told=False)
        process = nsys_files.global_id(5001)
        for launches in (True, False):
            db = sqlite3.connect(path)
            for table in ("KERNEL", "MEMCPY", "MEMSET"):
                if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_%s'" % table).fetchone():
                    db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_%s WHERE globalPid = %d" % (table, process))
            if not launches:
                db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid >> 24 = %d" % (process >> 24))
                db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION WHERE globalPid = %d" % process)
            # A helper that does neither is none.
            db.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (5, 6, 59, 'x', ?)",
                       (nsys_files.global_id(99, 99),))
            db.commit()
            db.close()
            read = self.imported("in", code=3, options=["--force"])
            self.assertEqual(sorted(read), [0, 1, 2, 3])
            self.assertEqual([rank for rank, file in read.items() if "GpuNotCaptured" in file.losses], [1])
            self.assertEqual(read[1].rows("steps"), 3)
            found = self.analysis("run", code=3)
            self.assertTrue(found["verdict"].startswith("GPU activity was not recorded"), found["verdict"])

    def test_one_rank_twice(self):
        files = self.files(self.ranks)
        shutil.copy(files[1], self.dir / "in" / "report_rank1_copy.sqlite")
        self.check(["in"], code=3)
        self.assertIn("rank 1 was read from", self.done.stdout)

    def test_missing_ranks(self):
        files = self.files(self.simulated(MPI))
        read = self.imported(files[0], files[3])
        self.assertEqual(sorted(read), [0, 3])
        found = self.analysis("run", code=3)
        self.assertEqual(found["run"]["ranks_missing"], [1, 2])


class Damage(Case):
    """What is broken is said; what is whole is read; nothing is written beside it."""

    def setUp(self):
        super().setUp()
        self.ranks = self.simulated(GPU)
        self.good = self.files(self.ranks)

    def kernels(self, run="run"):
        return {int(p.stem[5:]): jobs.RankFile(p).rows("kernels") for p in (self.dir / run / "ranks").glob("*.h5")}

    def test_cut_at_every_tenth(self):
        data = pathlib.Path(self.good[1]).read_bytes()
        whole = self.ranks[1].rows("kernels")
        for tenth in range(0, 10):
            pathlib.Path(self.good[1]).write_bytes(data[:len(data) * tenth // 10])
            done = self.lockstep("import", *self.good, "-o", "run", "--force", code=3)
            self.assertRegex(done.stdout, "parts of imported databases|files in ranks/ that could not be read")
            self.assertLessEqual(self.kernels().get(1, 0), whole)
        self.assertEqual(sorted(p.name for p in (self.dir / "in").iterdir()),
                         ["report_rank%d.sqlite" % r for r in range(4)])

    def test_flipped_bytes(self):
        data = bytearray(pathlib.Path(self.good[0]).read_bytes())
        for at in range(4096, len(data), 997):
            data[at] ^= 0x55
        pathlib.Path(self.good[0]).write_bytes(bytes(data))
        done = self.lockstep("import", "in", "-o", "run", code=None)
        self.assertIn(done.returncode, (0, 3), done.stderr)

    def test_rows_without_end(self):
        """Pages that point at one child many times hold more rows than the file has room for: they are not read."""
        path = str(self.dir / "rank_0.sqlite")
        db = sqlite3.connect(path)
        db.execute("PRAGMA page_size=512")
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.execute("CREATE TABLE ANALYSIS_DETAILS (duration INTEGER)")
        db.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER)")
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, 1)", ((i, i + 1) for i in range(20000)))
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'").fetchone()[0]
        db.commit()
        db.close()
        data = bytearray(pathlib.Path(path).read_bytes())
        number = lambda at, width: int.from_bytes(data[at:at + width], "big")
        inner = [page for page in range(1, len(data) // 512) if data[page * 512] == 5 and page != root - 1]
        # Inner pages: cells begin with their child. One level more than there was, each page with one child many times.
        for page, child in ((root - 1, inner[0]), (inner[0], inner[1])):
            at, child = page * 512, (child + 1).to_bytes(4, "big")
            data[at + 8:at + 12] = child
            for cell in range(number(at + 3, 2)):
                to = at + number(at + 12 + 2 * cell, 2)
                data[to:to + 4] = child
        self.assertGreater(root, 1)
        pathlib.Path(path).write_bytes(bytes(data))
        done = self.lockstep("import", path, "-o", "run", code=3)
        self.assertIn("more rows than the file has room for", done.stdout)

    def test_unfinished_export(self):
        pathlib.Path(self.good[2] + "-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504))
        done = self.lockstep("import", "in", "-o", "run", code=3)
        self.assertIn("report_rank2.sqlite-journal is not read", done.stdout)
        self.assertEqual(os.stat(self.good[2] + "-journal").st_size, 512)

    def test_locked(self):
        lock = sqlite3.connect(self.good[0])
        lock.execute("BEGIN EXCLUSIVE")
        try:
            self.imported(*self.good)
        finally:
            lock.rollback()
            lock.close()

    def test_write_ahead_log(self):
        db = sqlite3.connect(self.good[0])
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("DELETE FROM NVTX_EVENTS")
        db.commit()
        try:
            done = self.lockstep("import", "in", "-o", "run", code=3)
            self.assertIn("report_rank0.sqlite-wal is not read", done.stdout)
        finally:
            db.close()

    def test_what_is_no_report(self):
        (self.dir / "in" / "notes.sqlite").write_text("no database at all")
        (self.dir / "in" / "empty.sqlite").write_bytes(b"")
        other = sqlite3.connect(str(self.dir / "in" / "cookies.sqlite"))
        other.execute("CREATE TABLE moz_cookies (id INTEGER)")
        other.commit()
        other.close()
        (self.dir / "in" / "report.nsys-rep").write_bytes(b"whatever")
        shutil.copy(self.good[0], self.dir / "in" / "report_rank0.data")
        os.remove(self.good[0])
        done = self.lockstep("import", "in", "-o", "run")
        self.assertEqual(len(self.kernels()), 4)  # By its first bytes, whatever it is called.
        for line in ("notes.sqlite: no SQLite database", "empty.sqlite: the file is empty",
                     "cookies.sqlite: an SQLite database, but none of Nsight Systems",
                     "report.nsys-rep: a report as Nsight Systems keeps it: export it"):
            self.assertIn(line, done.stderr)
        done = self.lockstep("import", "in/cookies.sqlite", "-o", "run-2", code=2)
        self.assertIn("none of Nsight Systems", done.stderr)
        os.makedirs(self.dir / "only")
        shutil.copy(self.dir / "in" / "report.nsys-rep", self.dir / "only")
        for words in (("import", "only", "-o", "run-3"), ("analyze", "only"), ("report", "only"), ("diff", "only", "only")):
            done = self.lockstep(*words, code=2)
            self.assertIn("nsys export --type sqlite", done.stderr, words)

    def test_views_do_not_run(self):
        db = sqlite3.connect(self.good[0])
        db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY RENAME TO real_copies")
        db.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS SELECT * FROM real_copies")
        db.execute('CREATE TABLE "x"" y; DROP TABLE z" (a INTEGER)')
        db.commit()
        db.close()
        files = self.imported(*self.good)
        self.assertEqual(files[0].rows("copies"), 0)
        self.assertEqual(files[1].rows("copies"), 10)

    def test_wild_values(self):
        db = sqlite3.connect(self.good[0])
        kernels = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
        change = lambda what, row: db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET %s WHERE rowid = %d" % (what, row))
        change("start = 9223372036854775807", 1)
        change("start = 'soon'", 2)
        change("end = start - 5", 3)
        change("deviceId = -7, streamId = 1e300, demangledName = -1, shortName = -1, gridX = 9223372036854775807, "
               "correlationId = -1", 4)
        db.execute("UPDATE NVTX_EVENTS SET end = NULL WHERE rowid = 3")
        db.execute("UPDATE NVTX_EVENTS SET text = x'00ff1b5b324a', textId = NULL WHERE rowid = 4")
        hostile = chr(27) + "[2Jname\nwith " + chr(7) + " all of it " + chr(0x202e)
        db.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (5, 6, 59, ?, ?)",
                   (hostile, nsys_files.global_id(5000, 5000)))
        db.commit()
        db.close()
        file = self.imported(*self.good, code=3)[0]
        self.assertEqual(file.rows("kernels"), kernels - 2)
        self.assertEqual(file.losses["ImportTimeInvalid"], 1)
        self.assertEqual(file.losses["ImportEventUnreadable"], 1)
        self.assertEqual(file.losses["ImportNegativeDuration"], 1)
        self.assertEqual([int(o) for o in file.column("ranges", "open")].count(1), 1)
        done = self.lockstep("analyze", "run", "--table", "kernels", code=3)
        self.assertNotIn(chr(27) + "[2J", done.stdout)


class Lacking(Case):
    """Reports that lack what others have."""

    def test_devices_that_tables_do_not_fill(self):
        """0 in a table's deviceId or contextId whatever it is: other tables have it."""
        ranks = self.simulated(GPU)
        path = nsys_files.write(str(self.dir / "in" / "all.sqlite"), ranks)
        db = sqlite3.connect(path)
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        tables = [table for table in map("CUPTI_ACTIVITY_KIND_".__add__, ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION"))
                  if table in there]
        for rank in ranks:
            for table in tables:
                db.execute("UPDATE %s SET deviceId = ?, contextId = ? WHERE globalPid = ?" % table,
                           (rank, rank + 1, nsys_files.global_id(5000 + rank)))
        db.execute("CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, globalPid INTEGER, deviceId INTEGER, "
                   "contextId INTEGER, address INTEGER, bytes INTEGER, memKind INTEGER, memoryOperationType INTEGER)")
        db.executemany("INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (100, ?, ?, ?, 4096, 64, ?, 0)",
                       [(nsys_files.global_id(5000 + rank), rank, rank + 1, kind) for rank in ranks for kind in (1, 2)])
        db.commit()
        whole = self.imported("in", run="whole")
        known = self.analysis("whole")
        of = lambda files: {rank: {(t, c): [int(v) for v in file.column(t, c)] for t, c in
                                   (("kernels", "device"), ("kernels", "context"), ("copies", "device"),
                                    ("copies", "context"), ("sync", "device"), ("sync", "context"),
                                    ("copies", "destination_device"), ("gpu_memory", "device"))}
                            for rank, file in files.items()}
        self.assertEqual(set(of(whole)[2]["sync", "device"]), {2})
        self.assertEqual(sorted(of(whole)[2]["gpu_memory", "device"]), [2, 65535])
        for table in tables[1:] + ["CUDA_GPU_MEMORY_USAGE_EVENTS"]:
            for column in ("deviceId", "contextId"):
                db.execute("UPDATE %s SET %s = 0" % (table, column))
                db.commit()
                self.assertEqual(of(self.imported("in", run="run", options=["--force"])), of(whole), (table, column))
        db.close()
        found = self.analysis("run")
        self.assertEqual(found["verdict"], known["verdict"])
        self.assertEqual(found["ranks"], known["ranks"])

    def test_operators_of_emit_nvtx(self):
        """All calls of an operator have one name, and are operators; other ranges keep theirs."""
        path = self.files(self.simulated(self.ONE))[0]
        db = sqlite3.connect(path)
        tid = nsys_files.global_id(5000, 5000)
        names = []
        for i in range(4):
            names += ["aten::linear, seq = %d, op_id = %d, sizes = [[4, 8], [8]]" % (i, 100 + i),
                      "aten::empty, op_id = %d" % (200 + i), "Optimizer.step#SGD.step, op_id = %d" % (300 + i)]
        db.executemany("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES (?,?,59,?,?,0)",
                       [(2_000_000 + 1000 * i, 2_000_500 + 1000 * i, name, tid) for i, name in enumerate(names)])
        db.commit()
        db.close()
        file = self.imported(path)[0]
        ranges = list(zip((file.text(n) for n in file.column("ranges", "name")),
                          map(int, file.column("ranges", "source")), map(int, file.column("ranges", "payload")),
                          map(int, file.column("ranges", "payload_kind")), map(int, file.column("ranges", "category"))))
        self.assertEqual([r for r in ranges if r[0] == "aten::linear"], [("aten::linear", 3, i, 3, 0) for i in range(4)])
        self.assertEqual([r for r in ranges if r[0] == "aten::empty"], [("aten::empty", 3, 0, 0, 0)] * 4)
        self.assertEqual([r for r in ranges if r[0].startswith("Opt")], [("Optimizer.step#SGD.step", 2, 0, 0, 4)] * 4)
        ops = self.lockstep("analyze", "run", "--table", "ops").stdout
        self.assertRegex(ops, r"aten::linear +4 ")

    def test_calls_of_the_operating_system(self):
        """They say what the host did while the GPU idled, and change no interval."""
        path = self.files(self.simulated(self.ONE))[0]
        db = sqlite3.connect(path)
        db.execute("DELETE FROM NVTX_EVENTS")
        db.commit()
        before, unknown = self.imported(path)[0], self.idle()
        calls = db.execute("SELECT start, end, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start").fetchall()
        holes = [(one[1], two[0], one[2]) for one, two in zip(calls, calls[1:]) if one[1] < two[0]]
        db.execute("CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER)")
        db.execute("INSERT INTO StringIds VALUES (900001, 'fsync'), (900002, 'poll')")
        db.executemany("INSERT INTO OSRT_API VALUES (?, ?, ?, 900001)", holes)
        db.executemany("INSERT INTO OSRT_API VALUES (?, ?, ?, 900002)",
                       [(0, 10**12, calls[0][2] + 7), (5, None, calls[0][2] + 8)])
        db.commit()
        db.close()
        file, known = self.imported(path, options=("--force",))[0], self.idle()
        self.assertEqual(file.losses["ImportCategorySkipped"] - before.losses.get("ImportCategorySkipped", 0), 2)
        ranges = zip(file.column("ranges", "source"), file.column("ranges", "name"), file.column("ranges", "duration_ns"))
        self.assertEqual([(int(source), file.text(name), int(ns)) for source, name, ns in ranges],
                         [(5, "fsync", end - begin) for begin, end, _ in holes])
        self.assertGreater(unknown["host_unknown"], 0)
        self.assertEqual(known["between"], unknown["host_unknown"] + unknown.get("between", 0))
        self.assertEqual({c: ns for c, ns in known.items() if c != "between"},
                         {c: ns for c, ns in unknown.items() if c not in ("between", "host_unknown")})

    def idle(self):
        rows = csv.DictReader(io.StringIO(self.lockstep("analyze", "run", "--table", "idle", "--csv", "-").stdout))
        return {row["cause"]: int(row["total_ns"]) for row in rows if row["rank"] == "0"}

    def test_frameworks(self):
        """Advice for PyTorch is not given to a program that launches none of its kernels."""
        for name, torch in (("void at::native::vectorized_elementwise_kernel<4>(int)", True), ("advec_kernel", False)):
            path = self.files(self.simulated(self.ONE), folder="torch" if torch else "other")[0]
            db = sqlite3.connect(path)
            db.execute("INSERT INTO StringIds VALUES (900001, ?)", (name,))
            db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 900001, shortName = 900001 WHERE start = "
                       "(SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL)")
            db.commit()
            db.close()
            file = self.imported(path, run="run_" + str(torch))[0]
            self.assertEqual(file.meta["fact.framework"], "torch" if torch else "other")

    def test_tables_that_are_not_used(self):
        """Empty ones are not worth a word."""
        path = self.files(self.simulated(self.ONE))[0]
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE SCHED_EVENTS (start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER)")
        db.execute("CREATE TABLE GPU_METRICS (timestamp INTEGER)")
        db.executemany("INSERT INTO SCHED_EVENTS VALUES (?, 0, 1, 5)", ((i,) for i in range(12)))
        db.commit()
        db.close()
        file = self.imported(path)[0]
        self.assertEqual(file.losses["ImportCategorySkipped"], 12)
        self.assertIn("SCHED_EVENTS (12 rows)", self.done.stdout)
        self.assertNotIn("GPU_METRICS", self.done.stdout)

    ONE = GPU.replace("ranks 4", "ranks 1").replace("slow rank=2 factor=1.2\n", "")

    def test_no_ranges(self):
        ranks = self.simulated(GPU)
        for path in self.files(ranks, steps=None, nccl="none"):
            db = sqlite3.connect(path)
            db.execute("DROP TABLE NVTX_EVENTS")
            db.commit()
            db.close()
        found = self.analysis("in")
        self.assertEqual([s["rank"] for s in found["stragglers"]], [2])

    def test_no_kernels(self):
        """Launches and no kernel: what the GPU did is not known, and nothing is judged by the host's time."""
        ranks = self.simulated(GPU)
        for path in self.files(ranks):
            db = sqlite3.connect(path)
            for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
                db.execute("DROP TABLE IF EXISTS " + table)
            db.commit()
            db.close()
        found = self.analysis("in", code=3)
        self.assertTrue(found["verdict"].startswith("GPU activity was not recorded"), found["verdict"])

    def test_nothing_but_kernels(self):
        ranks = self.simulated(GPU)
        self.files(ranks, told=False, wall=None,
                   only={"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds", "ANALYSIS_DETAILS"})
        found = self.analysis("in")
        self.assertEqual(found["run"]["ranks"], 4)
        self.assertGreater(found["ranks"][0]["compute_ns"], 0)

    def test_few_ranks_and_steps(self):
        for ranks, steps in ((1, 1), (2, 1), (1, 5)):
            spec = self.ONE.replace("ranks 1", "ranks %d" % ranks).replace("steps 10", "steps %d" % steps)
            name = "sim-%d-%d" % (ranks, steps)
            self.files(self.simulated(spec, name), folder=name + "-in")
            found = self.analysis(name + "-in")
            self.assertEqual(found["run"]["ranks"], ranks)
            self.assertEqual(len(found["steps"]), steps)

    def test_steps_by_name(self):
        ranks = self.simulated(self.ONE)
        for i, (name, options, indices) in enumerate((
                ("iteration=%d", (), list(range(10))), ("Train Step", (), list(range(10))),
                ("epoch_part", ("--step-range", "epoch_part"), list(range(10))),
                ("my thing %d", ("--step-range", "my thing"), list(range(10))), ("unheard of", (), []))):
            self.files(ranks, folder="in-%d" % i, steps=name)
            files = self.imported("in-%d" % i, run="run-%d" % i, options=options)
            self.assertEqual(list(map(int, files[0].column("steps", "index"))), indices, name)

    def test_steps_by_name_without_an_import(self):
        self.files(self.simulated(self.ONE), folder="in", steps="my thing %d")
        # Without the name the pattern of collectives is what tells steps apart: between the first and the last.
        for options, steps in (((), 9), (("--step-range", "my thing"), 10), ((), 9)):
            found = json.loads(self.lockstep("analyze", "in", "--json", "-", *options, code=None).stdout)
            self.assertEqual(len(found["steps"]), steps, options)
        self.imported("in", options=("--step-range", "my thing"))
        done = self.lockstep("analyze", "run", "--step-range", "my thing", code=2)
        self.assertIn("--step-range is for traces of other tools", done.stderr)
        for command in (("import", "in", "-o", "none"), ("analyze", "in")):
            done = self.lockstep(*command, "--step-range", "your thing", code=2)
            self.assertIn("no range is named 'your thing'", done.stderr)
            self.assertIn("my thing (10 times)", done.stderr)

    def test_what_the_tool_warned_of(self):
        path = self.files(self.simulated(self.ONE))[0]
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE ENUM_DIAGNOSTIC_SEVERITY_LEVEL (id INTEGER, name TEXT, label TEXT)")
        db.execute("CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT)")
        db.executemany("INSERT INTO ENUM_DIAGNOSTIC_SEVERITY_LEVEL VALUES (?, ?, '')", ((1, "Info"), (2, "Warning")))
        db.executemany("INSERT INTO DIAGNOSTIC_EVENT VALUES (0, ?, ?)",
                       ((1, "Profiling has started."), (2, "Not all CUDA events might have been collected.")))
        db.commit()
        db.close()
        file = self.imported(path)[0]
        self.assertEqual(file.losses["ImportToolWarned"], 1)
        self.assertIn("Not all CUDA events", self.done.stdout)

    def test_graphs_recorded_whole(self):
        path = self.files(self.simulated(self.ONE))[0]
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, "
                   "contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (2000000, 3000000, 0, 1, 7, 99, ?, 4)",
                   (nsys_files.global_id(5000),))
        db.commit()
        db.close()
        file = self.imported(path)[0]
        self.assertEqual(file.losses["ImportGraphWhole"], 1)
        self.assertIn("CUDA graph 4", [file.text(n) for n in file.column("kernels", "name")])


class Commands(Case):
    """Every command that takes a run takes reports."""

    def test_all(self):
        self.files(self.simulated(GPU))
        self.lockstep("analyze", "in", "--table", "kernels")
        self.lockstep("analyze", "in/report_rank*.sqlite")
        self.lockstep("info", "in")
        self.lockstep("report", "in", "-o", "report.html")
        self.lockstep("export", "in", "--format", "chrome", "-o", "out.json")
        self.lockstep("import", "nsys", "in", "-o", "run")
        self.lockstep("import", "in", "-o", "run", code=2)
        done = self.lockstep("import", "kineto", "in", "-o", "run-2", code=2)
        self.assertIn("torch.profiler", done.stderr)
        done = self.lockstep("analyze", "in")
        self.assertIn("as imported before", done.stderr)

    def test_formats_side_by_side(self):
        """Both tools' files of one job in one directory: each rank is taken once, and that is said."""
        self.files(self.simulated(GPU))
        self.simulated(GPU, "kineto", "--kineto", "")
        for path in (self.dir / "kineto").glob("*.json"):
            shutil.copy(path, self.dir / "in")
        self.imported("in", code=3)
        self.assertIn("was read from", self.done.stdout)
        manifest = json.loads((self.dir / "run" / "manifest.json").read_text())
        self.assertEqual(manifest["imported"], "kineto, nsys")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
