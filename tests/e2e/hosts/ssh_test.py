"""Hosts that are reached by a real sshd: mpirun starts its daemons through it, and `lockstep gather` fetches through it.

usage: ssh_test.py BUILD_DIR

The sshd is Debian's (LOCKSTEP_SSHD, the machine's own, or BUILD_DIR/sshd, where `bootstrap test` unpacks the package). It
runs on the tests' hosts only, on a high port, with keys made for the test; nothing of the machine's ssh is read or changed.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time
import unittest

from four_hosts import JOB, jobs, of_hosts
from four_hosts import FourHosts as Case

PORT = 2222
UNPACKED = jobs.BUILD / "sshd"


def sshd():
    """The program, and where its libraries may be; None if there is none."""
    for program in (os.environ.get("LOCKSTEP_SSHD"), shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), str(UNPACKED / "usr/sbin/sshd")):
        if program and os.access(program, os.X_OK):
            libraries = pathlib.Path(program).resolve().parents[2] / "usr/lib" / (os.uname().machine + "-linux-gnu")
            return program, str(libraries)
    return None


class Secure(Case):
    def setUp(self):
        self.sshd = sshd()
        if not self.sshd:
            self.skipTest("there is no sshd: `bootstrap test` unpacks Debian's openssh-server into BUILD/sshd, or LOCKSTEP_SSHD names one")
        for program in ("ssh", "ssh-keygen"):
            if not shutil.which(program):
                self.skipTest(f"there is no {program}")
        super().setUp()
        self.keys = of_hosts.SHARED + "/keys"
        self.here = pathlib.Path(self.hosts.path("head", self.keys))
        self.here.mkdir()
        for name in ("host", "own"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.here / name)], check=True)
        names = ",".join(f"[{node}]:{PORT},[10.77.0.{i + 1}]:{PORT}" for i, node in enumerate(self.hosts.nodes))
        (self.here / "known").write_text(f"{names} " + (self.here / "host.pub").read_text())
        (self.here / "ssh_config").write_text(
            f"Host *\n  Port {PORT}\n  User root\n  IdentityFile {self.keys}/own\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.keys}/known\n"
            "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  BatchMode yes\n  ConnectTimeout 20\n")
        (self.here / "sshd_config").write_text(
            f"Port {PORT}\nHostKey {self.keys}/host\nAuthorizedKeysFile {self.keys}/own.pub\nPidFile none\nPermitRootLogin yes\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nStrictModes no\n")
        # It gives up its rights to a user of its own, which the machine need not have.
        users = pathlib.Path("/etc/passwd").read_text()
        (self.here / "passwd").write_text(users if "\nsshd:" in users else users + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
        for node in self.hosts.nodes:
            self.hold(self.hosts.start(node, ["sh", "-c", f"mount --bind {self.keys}/passwd /etc/passwd && mkdir -p /run/sshd && "
                                              f"exec {self.sshd[0]} -D -f {self.keys}/sshd_config -E {self.keys}/{node}.log"],
                                       env=dict(jobs.ENVIRONMENT, LD_LIBRARY_PATH=self.sshd[1]), stdin=subprocess.DEVNULL))
        self.ssh = f"ssh -F {self.keys}/ssh_config"
        for node in self.hosts.nodes:
            end = time.monotonic() + 60
            while (tried := self.hosts.run("head", [*self.ssh.split(), node, "hostname"])).stdout != node + "\n":
                self.assertLess(time.monotonic(), end, tried.stderr)
                time.sleep(0.1)

    def hold(self, context):
        if isinstance(context, subprocess.Popen):
            self.addCleanup(context.wait)
            self.addCleanup(context.kill)
            return context
        return super().hold(context)

    def job(self, words, options):
        words = self.hosts.mpirun_words(2, [jobs.LOCKSTEP, "run", *options, "--", *words])
        words[words.index("plm_rsh_agent") + 1] = self.ssh
        return self.hosts.run("head", words, cwd=of_hosts.OWN, env=jobs.ENVIRONMENT, timeout=100)

    def test_mpirun_and_gather(self):
        done = self.job([*JOB, "--steps", "10"], ["--no-send"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for node in self.hosts.nodes:
            self.assertIn("Accepted publickey for root", (self.here / f"{node}.log").read_text())
        lines = re.findall(r"^lockstep: .*(lockstep gather .*?)   then: lockstep analyze (.*)$", done.stderr, re.M)
        self.assertEqual(len(lines), 1, done.stderr)
        words = [*shlex.split(lines[0][0])[1:], "--rsh", self.ssh]
        gathered = self.hosts.run("head", [jobs.LOCKSTEP, *words], env=jobs.ENVIRONMENT)
        self.assertEqual((gathered.returncode, gathered.stderr), (0, ""), gathered.stdout)
        self.assertIn("8 of 8 ranks recorded", gathered.stdout)
        self.check_complete(self.analyze(lines[0][1]))
        # A host that does not know the key, and one that is not there.
        (self.here / "own.pub").write_text("")
        refused = self.hosts.run("head", [jobs.LOCKSTEP, "gather", "node2:/mnt/own/lockstep.out", "-o", "none", "--rsh", self.ssh], env=jobs.ENVIRONMENT)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("Permission denied", refused.stderr)

    def test_a_job_that_sends(self):
        done = self.job([*JOB, "--steps", "10"], [])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"rank files of 3 hosts, .* arrived")
        self.check_complete(self.analyze("lockstep.out/latest", "node1", of_hosts.OWN))


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Secure)
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
