#!/usr/bin/env python3
"""lockstep recover: a job under mpirun is killed - an application, an agent, all agents, mpirun - at a random time,
and what is recovered is held against what the victims say they had committed. And: a full disk, a read-only one,
leftovers of nobody, repetition.

usage: recover_test.py BUILD_DIR [TEST...]         the tests
       recover_test.py BUILD_DIR --kills N [SEED]  N kills and a table of what came of them
"""

import collections
import glob
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

VICTIM = str(jobs.BUILD / "tests/recover_victim")
MARKER = str(jobs.BUILD / "tests/e2e_marker")
RANKS = 3
KINDS = ("application", "agent", "all agents", "mpirun")


def words(path):
    """(marks committed, process, agent), zeros before the rank has begun."""
    try:
        data = path.read_bytes()[:24]
    except FileNotFoundError:
        data = b""
    return struct.unpack("QQQ", data) if len(data) == 24 else (0, 0, 0)


def runs(pid):
    """Also while the first thread is gone already and others, which hold its files, are not."""
    try:
        place = pathlib.Path("/proc/%d" % pid)
        gone = (place / "stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
        return not gone or len(list((place / "task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def recover(run, *options):
    done = jobs.run([jobs.LOCKSTEP, "recover", run, "--json", "-", *options], cwd="/")
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr.decode()


def digest(run):
    done = jobs.run([jobs.LOCKSTEP, "info", run, "--digest", "--json", "-"], cwd="/")
    return json.loads(done.stdout)["digest"]


def marks(path):
    file = jobs.RankFile(path)
    return file.ranges.get("mark", 0), file.losses


def one_kill(kind, seed):
    """Starts a job, kills, recovers. Returns what is wrong, and a line for the table."""
    chance = random.Random(seed)
    wrong = []
    earlier = jobs.segments()  # What others have left may carry a number that a process here has got again.
    with tempfile.TemporaryDirectory(prefix="lockstep-kill-") as directory:
        place = pathlib.Path(directory)
        counts = [place / ("count.%d" % rank) for rank in range(RANKS)]
        with open(place / "log", "wb") as log:
            launcher = subprocess.Popen(
                [*jobs.MPIRUN, "-np", str(RANKS), jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "-o",
                 str(place / "run"), "--", VICTIM, str(place / "count"), "3" if "agent" in kind else "60"],
                cwd=place, env=jobs.ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            if not jobs.wait_until(lambda: all(words(path)[0] > 0 for path in counts)):
                return ["the job never began: " + (place / "log").read_text(errors="replace")], ""
            apps = [words(path)[1] for path in counts]
            agents = [words(path)[2] for path in counts]
            time.sleep(chance.uniform(0, 1.0))
            victim = chance.randrange(RANKS)
            targets = {"application": [apps[victim]], "agent": [agents[victim]], "all agents": agents,
                       "mpirun": [launcher.pid]}[kind]
            for pid in targets:
                jobs.kill(pid)
            launcher.wait(timeout=120)
            # What the launcher left running ends as a scheduler would end it, and is waited for.
            jobs.wait_until(lambda: not any(runs(pid) for pid in apps + agents), 2)
            left = [pid for pid in apps + agents if runs(pid)]
            for pid in left:
                jobs.kill(pid)
            if not jobs.wait_until(lambda: not any(runs(pid) for pid in apps + agents)):
                return ["processes do not end"], ""
        finally:
            if launcher.poll() is None:
                launcher.kill()
                launcher.wait()
            for path in counts:
                for pid in words(path)[1:]:
                    if pid and runs(pid):
                        jobs.kill(pid)
        run = place / "run"
        shared = {path for path in jobs.segments() - earlier if path.rsplit("-", 1)[1] in map(str, agents)}
        code, report, said = recover(run)
        if code not in (0, 3) or report is None:
            return ["recover ended with %d: %s" % (code, said)], ""
        states = collections.Counter(rank["state"] for rank in report["ranks"])
        lost = 0
        for rank in range(RANKS):
            committed = words(counts[rank])[0]
            path = run / ("ranks/rank-%05d.h5" % rank)
            if not path.exists():
                wrong.append("rank %d: no file, %s" % (rank, report["ranks"]))
                continue
            found, losses = marks(path)
            dropped = losses.get("RingFull", 0)
            # The mark is committed before the count says so. Of what did not fit some are samples of the CPU's time.
            if not committed <= found + dropped or found > committed + 1 or (not dropped and found - committed not in (0, 1)):
                wrong.append("rank %d: %d marks recovered, %d dropped, %d committed" % (rank, found, dropped, committed))
            lost += dropped
        left = [path for path in glob.glob(str(run / "ranks/*")) if not path.endswith(".h5")]
        if left:
            wrong.append("left behind: %r" % left)
        if still := {path for path in shared if os.path.exists(path)}:
            wrong.append("left in shared memory: %r" % still)
        before = digest(run)
        again, repeated, _ = recover(run)
        if again != code or repeated["removed"] or any(rank["state"] not in ("recovered before", "complete")
                                                       for rank in repeated["ranks"]):
            wrong.append("not the same when repeated: %d then %d, %r" % (code, again, repeated))
        if digest(run) != before:
            wrong.append("the files changed when recover was repeated")
        analyzed, analysis, said = jobs.Run(run).analyze()
        if analyzed not in (0, 3) or analysis is None:
            wrong.append("analyze ended with %d: %s" % (analyzed, said))
        line = "%-12s code %d  %s  %d segments, %d dropped" % (
            kind, code, ", ".join("%d %s" % (n, state) for state, n in sorted(states.items())), len(shared), lost)
    return wrong, line


class Kills(unittest.TestCase):
    """A few; many are a matter of --kills."""

    def one(self, kind, seed):
        seed += int(os.environ.get("LOCKSTEP_TEST_SEED", "0"))
        wrong, line = one_kill(kind, seed)
        self.assertEqual(wrong, [], line)

    def test_application(self):
        self.one("application", 1)

    def test_agent(self):
        self.one("agent", 2)

    def test_all_agents(self):
        self.one("all agents", 3)

    def test_mpirun(self):
        self.one("mpirun", 4)

    def test_application_once_more(self):
        self.one("application", 5)


class Slot(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-recover-"))
        self.addCleanup(shutil.rmtree, self.place, True)

    def killed(self, output, *options, both=False):
        """A single slot whose application (and agent) was killed. Returns the number of marks it committed."""
        process = subprocess.Popen([jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "-o", str(output), *options, "--",
                                    MARKER, "n", "100000000", "200"], cwd=self.place, env=jobs.ENVIRONMENT)
        count = self.place / "n"
        self.assertTrue(jobs.wait_until(lambda: count.exists() and words(count)[0] > 20000))
        app = jobs.program_of(process)
        if both:
            jobs.kill(jobs.agent_of(process))
        jobs.kill(app)
        process.wait()
        self.assertTrue(jobs.wait_until(lambda: not runs(app)))
        return words(count)[0]

    def check(self, run, committed):
        found, losses = marks(run / "ranks/rank-00000.h5")
        self.assertIn(found + losses.get("RingFull", 0) - committed, (0, 1))



class Places(Slot):
    def tmpfs(self, size):
        disk = self.place / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + size, "none", str(disk)], capture_output=True).returncode:
            self.skipTest("mounting needs root")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)])
        return disk

    def test_full_disk_then_room(self):
        disk = self.tmpfs("64m")
        committed = self.killed(disk / "run", both=True)
        with open(disk / "ballast", "wb") as ballast:
            try:
                while True:
                    ballast.write(b"\0" * 65536)
                    ballast.flush()
            except OSError:
                pass
        spool = (disk / "run/ranks/rank-00000.spool").read_bytes()
        code, report, said = recover(disk / "run")
        self.assertEqual((code, report["ranks"][0]["state"]), (1, "not written"), said)
        self.assertIn("free space", said)
        self.assertEqual((disk / "run/ranks/rank-00000.spool").read_bytes(), spool)
        self.assertEqual([name for name in os.listdir(disk / "run/ranks") if name[0] != "."], ["rank-00000.spool"])
        (disk / "ballast").unlink()
        code, report, said = recover(disk / "run")
        self.assertEqual((code, report["ranks"][0]["state"]), (3, "recovered"), said)
        self.check(disk / "run", committed)

    def test_file_size_limit(self):
        committed = self.killed(self.place / "run")
        done = jobs.run(["bash", "-c", 'ulimit -f 8; exec "$@"', "bash", jobs.LOCKSTEP, "recover", self.place / "run"],
                        cwd="/")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue((self.place / "run/ranks/rank-00000.spool").exists())
        self.assertEqual(recover(self.place / "run")[0], 0)
        self.check(self.place / "run", committed)

    def test_read_only_directory(self):
        disk = self.tmpfs("64m")
        committed = self.killed(disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        code, report, said = recover(disk / "run")
        self.assertEqual((code, report["ranks"][0]["state"]), (1, "not written"), said)
        # What cannot be recovered in place can still be read.
        self.assertEqual(jobs.Run(disk / "run").analyze()[0], 3)
        # And recovered elsewhere.
        shutil.copytree(disk / "run", self.place / "copy")
        self.assertEqual(recover(self.place / "copy")[0], 0)
        self.check(self.place / "copy", committed)

    def test_interrupted_before_the_spool_was_removed(self):
        committed = self.killed(self.place / "run")
        ranks = self.place / "run/ranks"
        spool = (ranks / "rank-00000.spool").read_bytes()
        self.assertEqual(recover(self.place / "run")[0], 0)
        (ranks / "rank-00000.spool").write_bytes(spool)
        (ranks / "rank-00000.h5.part").write_bytes(b"half")
        code, report, _ = recover(self.place / "run")
        self.assertEqual((code, len(report["removed"])), (0, 2), report)
        self.assertFalse((ranks / "rank-00000.spool").exists())
        self.check(self.place / "run", committed)

    def test_damaged_spool_is_kept(self):
        self.killed(self.place / "run")
        spool = self.place / "run/ranks/rank-00000.spool"
        data = bytearray(spool.read_bytes())
        at = len(data) // 2
        data[at:at + 40] = b"\xff" * 40
        spool.write_bytes(data)
        for state in ("recovered", "recovered before"):
            code, report, _ = recover(self.place / "run")
            self.assertEqual((code, report["ranks"][0]["state"]), (3, state), report)
            self.assertTrue(report["ranks"][0]["spool_kept"])
            self.assertTrue(spool.exists())

    def test_nothing_to_do_and_nothing_there(self):
        done = jobs.run([jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "-o", "run", "--", "true"], cwd=self.place)
        self.assertEqual(done.returncode, 0)
        code, report, _ = recover(self.place / "run")
        self.assertEqual((code, report["ranks"][0]["state"], report["removed"]), (0, "complete", []))
        (self.place / "empty").mkdir()
        for path in ("empty", "nowhere"):
            done = jobs.run([jobs.LOCKSTEP, "recover", path], cwd=self.place)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr.count(b"\n"), 3, done.stderr)

    def test_missing_ranks_are_said(self):
        run = self.place / "run"
        self.assertEqual(jobs.run([jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "-o", run, "--", "true"],
                                  cwd=self.place).returncode, 0)
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["world_size"] = 2
        (run / "manifest.json").write_text(json.dumps(manifest))
        code, report, _ = recover(run)
        self.assertEqual((code, report["ranks"][1]["state"]), (3, "missing"))


@unittest.skipUnless("RECOVER_ISOLATED" in os.environ, "run by Isolation")
class Isolated(Slot):
    """--stale, in a /dev/shm of its own: others' leftovers are not to be touched."""

    def test_running_is_left_alone(self):
        process = subprocess.Popen([jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "-o", str(self.place / "run"), "--",
                                    MARKER, "n", "100000000", "200"], cwd=self.place, env=jobs.ENVIRONMENT)
        count = self.place / "n"
        self.assertTrue(jobs.wait_until(lambda: count.exists() and words(count)[0] > 5000))
        app, agent = jobs.program_of(process), jobs.agent_of(process)
        try:
            code, report, _ = recover(self.place / "run", "--stale")
            self.assertEqual((code, report["ranks"][0]["state"]), (3, "still running"), report)
            self.assertEqual(report["removed"], [])
            # Without its agent the application goes on into its ring.
            jobs.kill(agent)
            jobs.wait_until(lambda: not runs(agent))
            code, report, _ = recover(self.place / "run", "--stale")
            self.assertEqual((code, report["ranks"][0]["state"]), (3, "still running"), report)
            self.assertIn("application", report["ranks"][0]["why"])
            self.assertEqual(report["removed"], [])
        finally:
            jobs.kill(app)
            process.wait()
        self.assertTrue(jobs.wait_until(lambda: not runs(app)))
        code, report, _ = recover(self.place / "run")
        self.assertEqual((code, report["ranks"][0]["state"]), (3, "recovered"), report)
        self.check(self.place / "run", words(count)[0])

    def test_stale_segments(self):
        self.killed(self.place / "run", both=True)
        (segment,) = [path for path in jobs.segments() if not runs(int(path.rsplit("-", 1)[1]))
                      and path in (self.place / "run/ranks/rank-00000.spool").read_bytes().decode("latin-1")]
        shutil.rmtree(self.place / "run")
        done = jobs.run([jobs.LOCKSTEP, "recover", "--stale", "--json", "-"], cwd=self.place)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(segment, json.loads(done.stdout)["removed"])
        self.assertFalse(os.path.exists(segment))


class Isolation(unittest.TestCase):
    def test_isolated(self):
        mount = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
        if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
            self.skipTest("mounting needs root")
        done = subprocess.run([*mount, sys.executable, __file__, str(jobs.BUILD), "Isolated"],
                              env=dict(os.environ, RECOVER_ISOLATED="1"), capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr.decode())


def many(count, seed):
    bad, kinds = 0, collections.Counter()
    for i in range(count):
        kind = KINDS[i % len(KINDS)]
        wrong, line = one_kill(kind, seed + i)
        bad += bool(wrong)
        kinds[kind] += 1
        print("%3d  %s" % (i + 1, line or kind), flush=True)
        for what in wrong:
            print("     WRONG: " + what, flush=True)
    print("%d kills (%s): %d wrong" % (count, ", ".join("%d %s" % (n, k) for k, n in kinds.items()), bad))
    return 1 if bad else 0


if __name__ == "__main__":
    if "--kills" in sys.argv:
        at = sys.argv.index("--kills")
        sys.exit(many(int(sys.argv[at + 1]), int(sys.argv[at + 2]) if len(sys.argv) > at + 2 else 100))
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
