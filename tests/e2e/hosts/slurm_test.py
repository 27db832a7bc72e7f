"""Jobs of Slurm over four hosts of two ranks: munge, slurmctld on node1 and a slurmd on each are Debian's and real.

usage: slurm_test.py BUILD_DIR [TEST...]

`bootstrap test` unpacks them into BUILD_DIR/slurm (LOCKSTEP_SLURM names another such tree). They run on the tests' hosts
only, with a key and a configuration made for the test.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

from four_hosts import EACH, JOB, jobs, of_hosts
from four_hosts import FourHosts as Case

TREE = pathlib.Path(os.environ.get("LOCKSTEP_SLURM", jobs.BUILD / "slurm"))
LIBRARIES = TREE / "usr/lib" / (os.uname().machine + "-linux-gnu")
HERE = of_hosts.SHARED + "/slurm"
CONFIGURATION = f"""
ClusterName=test
SlurmctldHost=node1
SlurmUser=root
SlurmdUser=root
PluginDir={LIBRARIES}/slurm-wlm
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile={HERE}/slurmctld.log
SlurmdLogFile={HERE}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
KillWait=2
MailProg=/bin/true
NodeName=node[1-4] CPUs=8 Boards=1 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=100
PartitionName=all Nodes=node[1-4] Default=YES MaxTime=INFINITE State=UP
"""


class Slurm(Case):
    def setUp(self):
        if not (TREE / "usr/sbin/slurmctld-wlm").exists():
            self.skipTest("there is no Slurm: `bootstrap test` unpacks Debian's into BUILD/slurm, or LOCKSTEP_SLURM names such a tree")
        super().setUp()
        here = pathlib.Path(self.hosts.path("head", HERE))
        here.mkdir()
        (here / "slurm.conf").write_text(CONFIGURATION)
        (here / "munge.key").write_bytes(os.urandom(128))
        (here / "munge.key").chmod(0o400)
        libraries = f"{LIBRARIES}:{LIBRARIES}/slurm-wlm"
        # As on a cluster whose Slurm is installed: its programs find their libraries, and jobs inherit nothing of that.
        (here / "bin").mkdir()
        for program in [*(TREE / "usr/bin").iterdir(), *(TREE / "usr/sbin").iterdir()]:
            file = here / "bin" / program.name.removesuffix("-wlm")
            file.write_text(f'#!/bin/sh\nexec /lib64/ld-linux-x86-64.so.2 --library-path {libraries} --argv0 {file.name} {program} "$@"\n')
            file.chmod(0o755)
        # Messages between ranks go over the hosts' network; four hosts have the cores of one machine.
        self.environment = dict(jobs.ENVIRONMENT, SLURM_CONF=f"{HERE}/slurm.conf", PATH=f"{HERE}/bin:{jobs.BUILD}:{os.environ['PATH']}",
                                OMPI_MCA_btl="tcp,self", OMPI_MCA_pml="ob1", OMPI_MCA_btl_tcp_if_include=of_hosts.NETWORK, OMPI_MCA_mpi_yield_when_idle="1")
        for node in self.hosts.nodes:
            self.daemon(node, "mkdir -p /run/munge /run/slurm/state /run/slurm/spool; exec munged --foreground --force "
                        f"--key-file={HERE}/munge.key --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/pid --log-file=/run/munge/log "
                        "--seed-file=/run/munge/seed")
        for node in self.hosts.nodes:
            self.daemon(node, f"while [ ! -S /run/munge/munge.socket.2 ]; do sleep 0.02; done; exec slurmd -D -N {node} -d {HERE}/bin/slurmstepd")
        self.daemon("node1", "while [ ! -S /run/munge/munge.socket.2 ]; do sleep 0.02; done; exec slurmctld -D")
        end = time.monotonic() + 60
        while "idle" not in (asked := self.slurm("sinfo", "--Node", "--noheader", "-o", "%T")).stdout or set(asked.stdout.split()) != {"idle"}:
            self.assertLess(time.monotonic(), end, asked.stdout + asked.stderr)
            time.sleep(0.1)

    def daemon(self, node, script):
        with open(self.hosts.path("head", f"{HERE}/{node}.err"), "ab") as errors:
            process = self.hosts.start(node, ["sh", "-c", script], env=self.environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        self.addCleanup(process.wait)
        self.addCleanup(os.killpg, process.pid, signal.SIGKILL)

    def slurm(self, *words, cwd=of_hosts.OWN):
        """On node1, from where its users start jobs."""
        return self.hosts.run("node1", words, cwd=cwd, env=self.environment, timeout=100)

    def again(self, job):
        """
        What `job` returns, once no rank of it crashed. Under srun, Open MPI's TCP transport now and then calls a null pointer
        while MPI_Init waits for the others (4.1.4 in 1 of 6 jobs on a busy machine, 5.0.11 in 1 of 20), without Lockstep.
        """
        for _ in range(3):
            done = job()
            if "Segmentation fault" not in done.stdout + done.stderr:
                return done
            print(done.stdout, done.stderr, flush=True)  # The soak counts these (tests/soak/groups.toml).
        self.fail("a rank crashed in each of 8 jobs: " + done.stderr)

    def srun(self, words, cwd=of_hosts.OWN, lockstep=("lockstep", "run", "--"), outer=False):
        srun = ["srun", "--kill-on-bad-exit=1", f"--nodes={len(self.hosts.nodes)}", f"--ntasks-per-node={EACH}", f"--chdir={cwd}"]
        return self.again(lambda: self.slurm(*([*lockstep, *srun, *words] if outer else [*srun, *lockstep, *words]), cwd=cwd))

    def run_of(self, cwd=of_hosts.OWN):
        return f"{cwd}/lockstep.out/latest"

    def test_every_form(self):
        words = [*JOB, "--steps", "20"]
        bare = self.srun(words, lockstep=[])
        self.assertEqual(bare.returncode, 0, bare.stderr)
        for cwd in (of_hosts.SHARED, of_hosts.OWN):
            for outer in (False, True):
                with self.subTest(cwd=cwd, outer=outer):
                    done = self.srun(words, cwd, outer=outer)
                    self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (0, bare.stdout.splitlines()[0]), done.stderr)
                    self.assertIn("8 ranks on 4 nodes", done.stderr)
                    if cwd == of_hosts.OWN:
                        self.assertRegex(done.stderr, r"rank files of 3 hosts, .* arrived")
                    analysis = self.analyze(self.run_of(cwd), "node1")
                    self.check_complete(analysis)
                    self.check_clocks(self.hosts.path("node1", self.run_of(cwd) + "/timeline.h5"), analysis)

    def test_two_steps_of_a_batch_at_once(self):
        """Each is a run of its own, whose ranks are its own."""
        script = ("#!/bin/sh\nrm -rf lockstep.out; for steps in 10 20; do srun --kill-on-bad-exit=1 --exact --nodes=4 --ntasks=4 lockstep run -- " +
                  " ".join(JOB) + " --steps $steps & done; wait; exit 0\n")
        here = pathlib.Path(self.hosts.path("head", of_hosts.SHARED))
        (here / "batch").write_text(script)

        def batch():
            done = self.slurm("sbatch", "--wait", "--nodes=4", "--ntasks-per-node=2", "--output=said", "batch", cwd=of_hosts.SHARED)
            done.stderr += (here / "said").read_text()
            return done
        done = self.again(batch)
        said = done.stderr
        self.assertEqual(done.returncode, 0, said)
        runs = [path for path in (here / "lockstep.out").iterdir() if path.name.startswith("2")]
        self.assertEqual(len(runs), 2, said)
        found = sorted((row["run"]["ranks"], row["run"]["steps"], tuple(row["run"]["ranks_missing"]))
                       for row in (self.analyze(f"lockstep.out/{run.name}") for run in runs))
        self.assertEqual(found, [(4, 10, ()), (4, 20, ())], said)

    def test_a_rank_that_fails(self):
        """Slurm then kills all others at once, agents too: what had been recorded is in the shared directory."""
        fail = '[ "$SLURM_PROCID" != 5 ] || { "$@" & while [ ! -e fail ]; do sleep 0.1; done; kill -9 $!; exit 7; }; exec "$@"'
        ends = {}
        for lockstep in ([], ["lockstep", "run", "--"]):
            flag = pathlib.Path(self.hosts.path("head", of_hosts.SHARED + "/fail"))
            flag.unlink(missing_ok=True)
            self.once_training(flag.touch)
            ends[bool(lockstep)] = self.srun(["sh", "-c", fail, "sh", *JOB, "--steps", "5000"], of_hosts.SHARED, lockstep)
        self.assertEqual(ends[True].returncode, ends[False].returncode, ends[True].stderr)
        analysis = self.analyze(self.run_of(of_hosts.SHARED), "node1", code=3)
        self.assertEqual((analysis["run"]["ranks"], analysis["run"]["ranks_missing"]), (8, []))
        self.assertGreater(analysis["run"]["steps"], 3)
        self.assertIn("rank 5 exited with code 7", analysis["run"]["endings"])

    def test_a_rank_that_fails_where_each_host_has_its_own_disk(self):
        """
        The agents are killed and say nothing; rank 0's had left word, so that whoever looks is told how to get the rest. Or
        all is sent between Slurm's two signals: then it is all there.
        """
        fail = '[ "$SLURM_PROCID" != 5 ] || { "$@" & while [ ! -e fail ]; do sleep 0.1; done; kill -9 $!; exit 7; }; exec "$@"'
        flag = pathlib.Path(self.hosts.path("node3", of_hosts.OWN + "/fail"))
        home = pathlib.Path(self.hosts.path("node1", of_hosts.OWN))

        def once_told():
            end = time.monotonic() + 60
            while time.monotonic() < end and not any(text.read_bytes().count(b"node") == 3 for text in home.glob("lockstep.out/2*/ranks/.places")):
                time.sleep(0.05)
            flag.touch()

        def job():
            flag.unlink(missing_ok=True)
            shutil.rmtree(home / "lockstep.out", ignore_errors=True)  # What rank 0's agent was told in a job before.
            thread = threading.Thread(target=once_told)
            thread.start()
            try:
                return self.slurm("srun", "--kill-on-bad-exit=1", "--nodes=4", f"--ntasks-per-node={EACH}", f"--chdir={of_hosts.OWN}",
                                  "lockstep", "run", "--", "sh", "-c", fail, "sh", *JOB, "--steps", "5000")
            finally:
                thread.join()
        missing = "of 8 ranks recorded: nothing is there of ranks? "
        for _ in range(8):
            done = self.again(job)
            self.assertNotEqual(done.returncode, 0, done.stderr)
            seen = self.slurm("lockstep", "analyze", "lockstep.out/latest")
            if re.search(missing, seen.stdout):
                break
            self.assertEqual((seen.returncode, self.analyze(self.run_of(of_hosts.OWN), "node1", of_hosts.OWN, code=3)["run"]["ranks_missing"]), (3, []))
            self.assertNotIn("lockstep gather", seen.stderr)
        else:
            return
        for command in ("analyze", "info"):
            said = self.slurm("lockstep", command, "lockstep.out/latest")
            self.assertEqual(said.returncode, 3, said.stderr)
            self.assertRegex(said.stdout, missing)
            lines = re.findall(r"(?m)^lockstep: files of other hosts, .*(lockstep gather .*?)   then: lockstep analyze (.*)$", said.stderr)
            self.assertEqual(len(lines), 1, said.stdout + said.stderr)
            words = shlex.split(lines[0][0])
            self.assertEqual([word.split(":")[0] for word in words if word.startswith("node")], self.hosts.nodes)
        words = words[1:-1] + ["gathered"]
        gathered = self.hosts.run("head", [jobs.LOCKSTEP, *words, "--rsh", os.path.join(of_hosts.HERE, "rsh")], env=jobs.ENVIRONMENT)
        self.assertEqual(gathered.returncode, 0, gathered.stdout + gathered.stderr)
        analysis = self.analyze("gathered", code=3)
        self.assertEqual((analysis["run"]["ranks"], analysis["run"]["ranks_missing"]), (8, []))

    def test_a_job_that_is_cancelled(self):
        """scancel sends SIGTERM and, after a while, SIGKILL to all, agents too."""
        self.once_training(lambda: self.slurm("scancel", "--user=root"))
        done = self.srun([*JOB, "--steps", "5000"], of_hosts.SHARED)
        self.assertNotEqual(done.returncode, 0)
        analysis = self.analyze(self.run_of(of_hosts.SHARED), "node1", code=3)
        self.assertEqual((analysis["run"]["ranks"], analysis["run"]["ranks_missing"]), (8, []))
        self.assertGreater(analysis["run"]["steps"], 3)
        self.assertRegex(json.dumps(analysis["run"]["endings"]), "signal 15|without a status", done.stderr)


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Slurm)
    if len(sys.argv) > 2:
        suite = unittest.TestSuite(Slurm(name) for name in sys.argv[2:])
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
