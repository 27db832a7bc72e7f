#!/usr/bin/env python3
"""Run directories, shared memory and temporary files: readers in other containers touch nothing that lives, a run
takes in nobody of another, and what a hostile directory or neighbour has put somewhere is neither removed nor written
through. docs/security.md names these tests.

usage: run_dir_test.py BUILD_DIR [TEST...]
"""

import glob
import os
import pathlib
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
STEPS = str(HERE / "steps.py")
MARKER = str(jobs.BUILD / "tests/e2e_marker")
# A container: pids, mounts and /dev/shm of its own; boot id and files are the machine's.
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c",
             'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
RUN = [jobs.LOCKSTEP, "run", "--quiet", "--after", "none"]


def can_contain():
    return subprocess.run([*CONTAINER, "true"], capture_output=True).returncode == 0


def committed(path):
    try:
        data = path.read_bytes()[:8]
    except FileNotFoundError:
        data = b""
    return struct.unpack("<Q", data)[0] if len(data) == 8 else 0


def contents(directory):
    """Everything below, with what it holds: to be compared."""
    return {str(path): path.read_bytes() for path in pathlib.Path(directory).rglob("*")
            if path.is_file() and not path.is_symlink()}


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def spool_of(meta):
    """A spool with nothing but these words."""
    text = "".join("%s\t%s\n" % item for item in meta.items()).encode()
    head = struct.pack("<IHHI", 0x4b42534c, 1, 1, len(text)), struct.pack("<IIQ", 0, 0, 0)
    crc = crc32c(head[0] + struct.pack("<I", 0) + head[1] + text)
    return head[0] + struct.pack("<I", crc) + head[1] + text


class Case(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-security-"))
        self.addCleanup(shutil.rmtree, self.place, True)

    def lockstep(self, *words, cwd=None, inside=()):
        done = jobs.run([*inside, jobs.LOCKSTEP, *words], cwd=cwd or self.place)
        return done.returncode, done.stdout.decode() + done.stderr.decode()

    def start(self, words, inside=(), env=None):
        process = subprocess.Popen([*inside, *map(str, words)], cwd=self.place, env=dict(jobs.ENVIRONMENT, **(env or {})),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)

        def end():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.addCleanup(end)
        return process

    def killed(self, output, *options, cwd=None):
        """A run whose application and agent were killed. The marks it had committed."""
        process = self.start([*RUN, "-o", output, *options, "--", MARKER, "n", "100000000", "200"])
        count = self.place / "n"
        self.assertTrue(jobs.wait_until(lambda: committed(count) > 5000))
        app, agent = jobs.program_of(process), jobs.agent_of(process)
        os.kill(agent, signal.SIGKILL)
        # What is recorded without an agent is in the segment alone.
        without = committed(count)
        self.assertTrue(jobs.wait_until(lambda: committed(count) > without + 10))
        os.kill(app, signal.SIGKILL)
        process.wait()
        marks = committed(count)
        count.unlink()
        self.addCleanup(lambda: [os.path.exists(path) and os.unlink(path) for path in glob.glob(
            "/dev/shm/lockstep-*-%d" % agent)])
        return marks

    def segment_of(self, run):
        data = (run / "ranks/rank-00000.spool").read_bytes()
        at = data.index(b"segment\t") + 8
        return data[at:data.index(b"\n", at)].decode()

    def marks(self, run):
        file = jobs.RankFile(run / "ranks/rank-00000.h5")
        return file.ranges.get("mark", 0) + file.losses.get("RingFull", 0)


class Containers(Case):
    """The reader and the run in pid namespaces of their own, with a /dev/shm each; the directory is shared."""

    STEPS = int(os.environ.get("SECURITY_STEPS", "120"))

    def setUp(self):
        super().setUp()
        if not can_contain():
            self.skipTest("namespaces need root")

    def job(self, inside):
        words = [jobs.PYTHON, STEPS, str(self.STEPS), "0.04"]
        if shutil.which("mpirun"):
            return self.start([*jobs.MPIRUN, "-np", "2", *RUN, "-o", "run", "--", *words], inside), 2
        return self.start([*RUN, "-o", "run", "--", *words], inside), 1

    def read_all_the_time(self, recorder, reader):
        job, ranks = self.job(recorder)
        run = self.place / "run"
        spools = [run / ("ranks/rank-%05d.spool" % rank) for rank in range(ranks)]
        self.assertTrue(jobs.wait_until(lambda: all(path.exists() and path.stat().st_size > 4096 for path in spools)))
        looks = running = 0
        while job.poll() is None:
            code, said = self.lockstep("recover" if looks % 3 == 2 else "analyze", str(run), inside=reader)
            looks += 1
            if job.poll() is None and all(path.exists() for path in spools):
                self.assertNotIn(code, (1, 2), said)
                running += "still run" in said
            jobs.wait_until(lambda: job.poll() is not None, 0.25)
        self.assertEqual(job.returncode, 0)
        self.assertGreater(looks, 3)
        self.assertGreater(running, 1)
        for rank in range(ranks):
            file = jobs.RankFile(run / ("ranks/rank-%05d.h5" % rank))
            self.assertEqual(file.rows("steps"), self.STEPS)
            self.assertNotIn("recovered", {k for k, v in file.attributes.items() if k == "recovered" and v})
        self.assertEqual([path for path in os.listdir(run / "ranks") if path.endswith((".spool", ".part"))], [])

    def test_reader_in_a_container(self):
        self.read_all_the_time((), CONTAINER)

    def test_run_in_a_container(self):
        self.read_all_the_time(CONTAINER, ())

    def test_run_and_reader_in_two_containers(self):
        """Their processes have the same small numbers."""
        self.read_all_the_time(CONTAINER, CONTAINER)

    def test_application_that_outlives_its_agent(self):
        """In a container: neither its spool nor its rings are taken by somebody who cannot see it."""
        pids = self.place / "agent"
        self.start(["sh", "-c", '"$@" & echo $! > agent; wait; sleep 1000', "sh", *RUN, "-o", "run", "--", MARKER, "n",
                    "100000000", "2000"], CONTAINER)
        self.assertTrue(jobs.wait_until(lambda: committed(self.place / "n") > 5000 and pids.exists()))
        run = self.place / "run"
        # Seen from here it has another number; it is the one with the descriptor of the spool.
        (agent,) = {path.split("/")[2] for path in glob.glob("/proc/[0-9]*/fd/*")
                    if os.path.islink(path) and self.target(path) == str(run / "ranks/rank-00000.spool")}
        os.kill(int(agent), signal.SIGKILL)
        self.assertTrue(jobs.wait_until(lambda: not os.path.exists("/proc/%s/exe" % agent)
                                   or not self.target("/proc/%s/exe" % agent)))
        before = contents(run / "ranks")
        for inside in ((), CONTAINER):
            code, said = self.lockstep("recover", str(run), inside=inside)
            self.assertEqual(code, 3, said)
            self.assertIn("another container of this machine", said)
            self.assertIn("--without-memory", said)
            self.assertEqual(contents(run / "ranks"), before)
            self.assertEqual(self.lockstep("analyze", str(run), inside=inside)[0], 3)
            self.assertEqual(contents(run / "ranks"), before)
        # What cannot be had any more is given up when it is said, and only then.
        code, said = self.lockstep("recover", str(run), "--without-memory")
        self.assertEqual(code, 3, said)
        self.assertIn("recovered", said)
        self.assertEqual([name for name in os.listdir(run / "ranks") if name[0] != "."], ["rank-00000.h5"])

    @staticmethod
    def target(path):
        try:
            return os.readlink(path)
        except OSError:
            return ""

    def test_two_recoveries_at_once(self):
        marks = self.killed(self.place / "run")
        both = [subprocess.Popen([jobs.LOCKSTEP, "recover", str(self.place / "run")], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT) for _ in range(4)]
        said = [process.communicate()[0].decode() for process in both]
        self.assertLessEqual({process.returncode for process in both}, {0, 3}, said)
        self.assertIn(self.marks(self.place / "run") - marks, (0, 1))
        self.assertEqual([name for name in os.listdir(self.place / "run/ranks") if name[0] != "."], ["rank-00000.h5"])
        self.assertEqual([name for name in os.listdir(self.place / "run/ranks") if name.endswith(".part")], [])


class Reruns(Case):
    """torchrun again and again on one port: each launch is a run of its own, and all its slots meet."""

    def setUp(self):
        super().setUp()
        if jobs.run([jobs.PYTHON, "-c", "import torch.distributed.run"], cwd="/").returncode != 0:
            self.skipTest("no PyTorch")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def torchrun(self, ranks, script):
        # Redirected and copied: torch 1.13 under Python 3.11 fails with its default (Std(0) of an IntFlag is None).
        return [jobs.PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--master_port", self.port, "-r",
                "1", "-t", "1", "--no_python", *RUN, "--", jobs.PYTHON, "-c", script]

    def runs(self):
        return sorted(path for path in (self.place / "lockstep.out").iterdir() if not path.is_symlink())

    def slots(self, run):
        return sorted(int(path.name[7:]) for path in (run / "ranks").glob(".agent-[0-9]*"))

    def test_one_port(self):
        quick = "import os"
        first_ends = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(3)"
        late = "import os, time\ntime.sleep(2 * (os.environ['RANK'] == '0'))"
        expected = []
        seen = set()
        for ranks, script in ((2, quick), (2, quick), (3, quick), (1, quick), (2, first_ends), (3, late), (2, quick)):
            # A worker's end must not end the other before that one has begun: torchrun stops it when it notices.
            jobs.run(self.torchrun(ranks, script), cwd=self.place,
                     env={"PET_MONITOR_INTERVAL": "5"} if script is first_ends else {})
            new = [run for run in self.runs() if run not in seen]
            self.assertEqual(len(new), 1, (new, expected))
            seen.update(new)
            self.assertEqual(self.slots(new[0]), list(range(ranks)))
        # One that is killed at once, with its workers.
        process = self.start(self.torchrun(2, "import signal; signal.pause()"))
        self.assertTrue(jobs.wait_until(lambda: any(self.slots(run) for run in self.runs() if run not in seen)))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # Workers are in sessions of their own.
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                if b"MASTER_PORT=" + self.port.encode() + b"\0" in pathlib.Path(path).read_bytes():
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
            except OSError:
                pass
        seen.update(self.runs())
        jobs.run(self.torchrun(2, quick), cwd=self.place)
        (new,) = [run for run in self.runs() if run not in seen]
        self.assertEqual(self.slots(new), [0, 1])
        self.assertEqual(len(list((new / "ranks").glob("*.h5"))), 2)


class Hostile(Case):
    """A run directory that somebody else has filled."""

    def precious(self, name="precious"):
        path = self.place / name
        path.write_bytes(b"mine")
        return path

    def made_up(self, segment, **more):
        """A run directory whose spool says these things."""
        run = self.place / "hostile"
        (run / "ranks").mkdir(parents=True, exist_ok=True)
        meta = {"schema_version": "1", "rank": "0", "host": os.uname().nodename, "agent_pid": "999999",
                "boot_id": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "lock": "ofd",
                "run_id": "x", "segment": segment, "segment_device": str(os.stat("/dev/shm").st_dev), "nonce": "0" * 16}
        (run / "ranks/rank-00000.spool").write_bytes(spool_of(dict(meta, **more)))
        return run

    def test_segment_named_in_a_spool(self):
        precious = self.precious()
        shm = pathlib.Path("/dev/shm/lockstep-%d-%016x-0-999999" % (os.geteuid(), 0x5ec))
        shm.write_bytes(b"mine")
        self.addCleanup(shm.unlink, True)
        for name in (str(precious), "/dev/shm/../.." + str(precious), str(shm), "ranks/../../precious"):
            run = self.made_up(name)
            for command in ("recover", "analyze"):
                code, said = self.lockstep(command, str(run))
                self.assertIn(code, (0, 1, 3), said)
                self.assertEqual(precious.read_bytes(), b"mine")
                self.assertEqual(shm.read_bytes(), b"mine")

    def test_file_system_without_locks(self):
        """Then it is the agent's process that tells, and where that cannot be asked how long the spool is silent."""
        here = str(os.stat("/proc/self/ns/pid").st_ino)
        mine = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
        for more, silent, runs in (
                ({"agent_pid": str(os.getpid()), "agent_start": mine, "pid_namespace": here}, 10000, True),
                ({"agent_pid": str(os.getpid()), "agent_start": "1", "pid_namespace": here}, 0, False),
                ({"agent_pid": "999999", "agent_start": "1", "pid_namespace": here}, 0, False),
                ({"agent_pid": "999999", "agent_start": "1", "pid_namespace": "1"}, 0, True),
                ({"agent_pid": "999999", "agent_start": "1", "pid_namespace": "1"}, 1000, False)):
            run = self.made_up("", lock="none", **more)
            spool = run / "ranks/rank-00000.spool"
            os.utime(spool, (spool.stat().st_mtime - silent,) * 2)
            code, said = self.lockstep("recover", str(run))
            self.assertEqual("still running" in said, runs, (more, silent, said))
            self.assertEqual(spool.exists(), runs)
            shutil.rmtree(run)

    def test_segment_of_another_run(self):
        """A copy of a spool leads to the records, and removes nothing; made-up words do not even lead there."""
        marks = self.killed(self.place / "run")
        segment = self.segment_of(self.place / "run")
        run = self.made_up(segment)
        self.lockstep("recover", str(run))
        self.assertTrue(os.path.exists(segment))
        shutil.copytree(self.place / "run", self.place / "copy")
        self.assertEqual(self.lockstep("recover", str(self.place / "copy"))[0], 3)
        self.assertIn(self.marks(self.place / "copy") - marks, (0, 1))
        self.assertTrue(os.path.exists(segment))
        self.assertEqual(self.lockstep("recover", str(self.place / "run"))[0], 3)
        self.assertIn(self.marks(self.place / "run") - marks, (0, 1))
        self.assertFalse(os.path.exists(segment))

    def test_spool_that_is_a_link(self):
        precious = self.precious()
        marks = self.killed(self.place / "run", "--spool-dir", str(self.place))
        (spool,) = self.place.glob("lockstep-*.spool")
        run = self.place / "hostile"
        (run / "ranks").mkdir(parents=True)
        link = run / "ranks/rank-00000.spool"
        for target in (precious, "../../" + spool.name, spool):
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            before = spool.read_bytes()
            code, said = self.lockstep("recover", str(run))
            self.assertEqual(precious.read_bytes(), b"mine")
            self.assertEqual(spool.read_bytes(), before, said)
        # It is this run's, and goes with it.
        self.assertEqual(self.lockstep("recover", str(self.place / "run"))[0], 3)
        self.assertFalse(spool.exists())
        del marks

    def test_spool_on_another_node(self):
        """What is said can be done: host, file and command, and then it works."""
        marks = self.killed(self.place / "run", "--spool-dir", str(self.place))
        run = self.place / "run"
        (spool,) = self.place.glob("lockstep-*.spool")
        shutil.move(spool, self.place / "there")
        claim = run / "ranks/.agent-00000"
        claim.write_text(claim.read_text().replace("host " + os.uname().nodename, "host node17"))
        code, said = self.lockstep("recover", str(run))
        self.assertEqual(code, 3, said)
        for word in ("node17", str(spool), "lockstep recover " + os.path.realpath(run), "rank-00000.spool"):
            self.assertIn(word, said)
        code, analysis, said = jobs.Run(run).analyze()
        self.assertIn("node17", said + str(analysis))
        (run / "ranks/rank-00000.spool").unlink()
        shutil.copyfile(self.place / "there", run / "ranks/rank-00000.spool")
        self.assertEqual(self.lockstep("recover", str(run))[0], 3)
        self.assertIn(self.marks(run) - marks, (0, 1))

    def test_links_under_names_that_we_write(self):
        """Neither followed nor in the way: what they point to stays as it is."""
        precious = self.precious()
        self.killed(self.place / "run")
        run = self.place / "run"
        for name in ("ranks/rank-00000.h5.part", "ranks/rank-00000.h5", "timeline.h5.part", "timeline.h5",
                     "analysis.json.part", "analysis.json", "report.html", "report.html.part"):
            (run / name).unlink(missing_ok=True)
            (run / name).symlink_to(precious)
        for command in (["recover"], ["analyze"], ["report"], ["merge"]):
            code, said = self.lockstep(*command, str(run))
            self.assertIn(code, (0, 3), said)
            self.assertEqual(precious.read_bytes(), b"mine", command)
        self.assertFalse((run / "timeline.h5").is_symlink())
        self.assertFalse((run / "ranks/rank-00000.h5").is_symlink())

    def test_ranks_that_is_a_link(self):
        self.killed(self.place / "run")
        run = self.place / "hostile"
        run.mkdir()
        (run / "ranks").symlink_to(self.place / "run/ranks")
        before = contents(self.place / "run")
        code, said = self.lockstep("recover", str(run))
        self.assertEqual(code, 3, said)
        self.assertIn("link", said)
        self.assertEqual(self.lockstep("analyze", str(run))[0], 3)
        self.assertEqual(contents(self.place / "run"), before)
        # And nothing is recorded through it.
        shutil.rmtree(run)
        run.mkdir()
        (run / "ranks").symlink_to(self.place / "run/ranks")
        done = jobs.run([*RUN[:2], "--after", "none", "-o", run, "--", "true"], cwd=self.place,
                        env={"TMPDIR": str(self.place)})
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"link", done.stderr)
        self.assertEqual(contents(self.place / "run"), before)

    def test_latest_that_leads_away(self):
        self.assertEqual(jobs.run([*RUN, "--", "true"], cwd=self.place).returncode, 0)
        # It recorded nothing, so that `latest` does not lead to it.
        self.assertEqual(self.lockstep("recover")[0], 2)
        run = jobs.newest(self.place / "lockstep.out")
        (run.parent / "latest").symlink_to(run.name)
        self.assertEqual(self.lockstep("recover")[0], 0)
        latest = self.place / "lockstep.out/latest"
        latest.unlink()
        latest.symlink_to("/")
        code, said = self.lockstep("recover")
        self.assertEqual(code, 2)
        self.assertIn("not made by a run", said)

    def test_another_users_run_is_only_read(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.killed(self.place / "run")
        run = self.place / "run"
        for what in (run, run / "ranks", run / "ranks/rank-00000.spool"):
            os.chown(what, 65534, 65534)
            before = contents(run / "ranks")
            code, said = self.lockstep("recover", str(run))
            self.assertEqual(code, 3, said)
            self.assertIn("another's", said)
            self.assertEqual(self.lockstep("analyze", str(run))[0], 3)
            self.assertEqual(contents(run / "ranks"), before)
            os.chown(what, 0, 0)
        segment = self.segment_of(run)
        self.assertEqual(self.lockstep("recover", str(run))[0], 3)
        self.assertFalse(os.path.exists(segment))

    def test_pipes_do_not_hold_anybody(self):
        run = self.place / "hostile"
        (run / "ranks").mkdir(parents=True)
        for name in ("ranks/rank-00000.spool", "ranks/rank-00001.h5", "ranks/.agent-00000", "manifest.json", "timeline.h5",
                     "analysis.json"):
            os.mkfifo(run / name)
        for command in ("recover", "analyze", "merge", "report", "info"):
            self.assertIn(self.lockstep(command, str(run))[0], (2, 3))


class Recording(Case):
    """What a neighbour has put where a run will write."""

    ID = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "security", "MASTER_PORT": "1"}

    def record(self, *options, env=None):
        done = jobs.run([*RUN[:2], "--after", "none", *options, "--", "sh", "-c", "echo out; exit 5"], cwd=self.place,
                        env=env)
        # The program is what it was, whatever is said.
        self.assertEqual((done.returncode, done.stdout), (5, b"out\n"), done.stderr)
        return done.stderr.decode()

    def test_planted_spool_and_claim(self):
        precious = self.place / "precious"
        precious.write_bytes(b"mine")
        for name in ("rank-00000.spool", "rank-00000.ring", ".agent-00000", ".run-id"):
            run = self.place / ("run" + name)
            (run / "ranks").mkdir(parents=True)
            (run / name if name == ".run-id" else run / "ranks" / name).symlink_to(precious)
            self.record("-o", str(run))
            self.assertEqual(precious.read_bytes(), b"mine", name)

    def test_id_links(self):
        (self.place / "elsewhere/20200101-000000-abcd/ranks").mkdir(parents=True)
        self.record(env=self.ID)
        (link,) = (self.place / "lockstep.out").glob(".id-*")
        for target in ("../elsewhere", "../elsewhere/20200101-000000-abcd", str(self.place / "elsewhere"), ".", "x/../y"):
            link.unlink()
            link.symlink_to(target)
            self.record(env=self.ID)
            self.assertEqual([path for path in (self.place / "elsewhere").rglob("*") if path.is_file()], [])

    def test_fallback_in_tmp(self):
        (self.place / "lockstep.out").write_text("in the way")
        base = self.place / ("lockstep.out-%d" % os.geteuid())
        env = {"TMPDIR": str(self.place)}
        self.assertIn("files go to", self.record(env=env))
        self.assertEqual(stat.S_IMODE(base.stat().st_mode), 0o700)
        shutil.rmtree(base)
        (self.place / "elsewhere").mkdir()
        base.symlink_to(self.place / "elsewhere")
        self.assertIn("it is a link", self.record(env=env))
        base.unlink()
        base.mkdir()
        base.chmod(0o777)
        self.assertIn("others may write to it", self.record(env=env))
        if os.geteuid() == 0:
            base.chmod(0o700)
            os.chown(base, 65534, 65534)
            self.assertIn("belongs to user 65534", self.record(env=env))
        self.assertEqual(os.listdir(base), [])
        self.assertEqual(os.listdir(self.place / "elsewhere"), [])

    def test_imports_in_tmp(self):
        """Where traces lie in a place that cannot be written."""
        traces = self.place / "traces"
        traces.mkdir()
        (traces / "rank0.json").write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, '
                                           '"ts": 1, "dur": 2}], "distributedInfo": {"rank": 0, "world_size": 1}}')
        (traces / ".lockstep").symlink_to(self.place / "elsewhere")
        (self.place / "elsewhere").mkdir()
        base = self.place / ("lockstep-%d" % os.geteuid())
        base.mkdir()
        base.chmod(0o777)
        env = {"TMPDIR": str(self.place), "HOME": "", "XDG_CACHE_HOME": ""}
        words = [jobs.LOCKSTEP, "analyze", str(traces)]
        done = jobs.run(words, cwd=self.place, env=env)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(os.listdir(base) + os.listdir(self.place / "elsewhere"), [])
        base.chmod(0o700)
        done = jobs.run(words, cwd=self.place, env=env)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        self.assertTrue(all(name.startswith("import-") for name in os.listdir(base)), os.listdir(base))
        self.assertNotEqual(os.listdir(base), [])

    def test_planted_in_a_directory_open_to_all(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.place.chmod(0o1777)
        for name, options in (("lockstep.out", ()), ("mine", ("-o", "mine"))):
            (self.place / name).mkdir()
            os.chown(self.place / name, 65534, 65534)
            tmp = self.place / ("tmp-" + name)
            tmp.mkdir()
            self.assertIn("belongs to another user", self.record(*options, env={"TMPDIR": str(tmp)}))
            self.assertEqual(os.listdir(self.place / name), [])

    def test_shared_memory_is_the_users_alone(self):
        process = self.start([*RUN, "-o", "run", "--", MARKER, "n", "100000000", "2000"])
        spool = self.place / "run/ranks/rank-00000.spool"
        self.assertTrue(jobs.wait_until(lambda: committed(self.place / "n") > 100 and spool.exists()))
        self.assertEqual(stat.S_IMODE(os.stat(self.segment_of(self.place / "run")).st_mode), 0o600)
        # A stranger who may read the spool may lock it for reading only, and stops nobody.
        import fcntl
        with open(spool, "rb") as stranger:
            with self.assertRaises(OSError):
                fcntl.fcntl(stranger, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
            agent = jobs.agent_of(process)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.assertTrue(jobs.wait_until(lambda: jobs.gone(agent)))
            fcntl.fcntl(stranger, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
            # The program is killed, too, and what it still holds is left alone until it is gone.
            rank = self.place / "run/ranks/rank-00000.h5"
            self.assertTrue(jobs.wait_until(lambda: self.lockstep("recover", str(self.place / "run"))[0] == 3 and rank.exists()))


if __name__ == "__main__":
    program = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False)
    jobs.leave(program.result)
