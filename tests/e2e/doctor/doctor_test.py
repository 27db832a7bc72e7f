"""lockstep doctor with its real probes: on this machine as it is, with each fault that can be made here, and on runs."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs  # noqa: E402

MARKER = str(jobs.BUILD / "tests/e2e_marker")


class Doctor(unittest.TestCase):
    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-doctor-test-"))
        self.addCleanup(shutil.rmtree, self.place, True)

    def ask(self, *options, env=None, before=()):
        """(exit code, name -> finding)"""
        done = jobs.run([*before, jobs.LOCKSTEP, "doctor", "--json", "-", *options], cwd=self.place, env=env)
        self.assertIn(done.returncode, (0, 5), done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["schema"], "lockstep.doctor/1")
        self.assertEqual(report["blockers"] > 0, done.returncode == 5)
        findings = {check["name"]: check for check in report["checks"]}
        for finding in findings.values():
            self.assertEqual(finding["remedy"] is None, finding["status"] in ("ok", "not here"), finding)
        return done.returncode, findings

    def status(self, findings, name, expected, text=""):
        self.assertEqual(findings[name]["status"], expected, findings[name])
        self.assertIn(text, findings[name]["text"])

    def test_this_machine(self):
        code, findings = self.ask()
        self.assertEqual(code, 0, findings)
        for name in ("lockstep", "probe", "hdf5"):
            self.status(findings, name, "ok")
        if jobs.have("mpirun") and os.path.exists(jobs.BUILD / "liblockstep-mpi.so"):
            self.status(findings, "mpi", "ok", "Open MPI")
            self.status(findings, "mpi_records", "ok", "every MPI call was recorded")
        if not os.path.exists("/proc/driver/nvidia/version"):
            self.assertEqual({findings[name]["status"] for name in ("cupti", "nccl")}, {"not here"})
        self.assertEqual(sorted(os.listdir(self.place)), [])
        text = jobs.run([jobs.LOCKSTEP, "doctor"], cwd=self.place)
        lines = text.stdout.decode().splitlines()
        self.assertEqual(len(lines), len(findings) + 2, "one line each")
        self.assertNotIn(b"\x1b", text.stdout)

    def test_environment(self):
        _, findings = self.ask(env={"NVTX_INJECTION64_PATH": "/opt/nsys/lib.so",
                                       "CUDA_INJECTION64_PATH": "/opt/nsys/lib.so", "NCCL_PROFILER_PLUGIN": "none"})
        self.assertEqual(findings["nvtx"]["status"], "warning")
        for name in ("cupti_slot", "nccl_plugin"):
            self.assertIn(findings[name]["status"], ("warning", "not here"), findings[name])

    def test_no_library(self):
        _, findings = self.ask(env={"LOCKSTEP_LIBRARY_DIR": str(self.place)})
        self.status(findings, "lockstep", "blocker", "was not found")

    def test_limits(self):
        _, findings = self.ask(before=["bash", "-c", 'ulimit -f 4096; exec "$@"', "bash"])
        self.status(findings, "limits", "blocker", "file size")

    def test_small_shared_memory(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            self.skipTest("mounting needs root")
        mount = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"', "sh"]
        _, findings = self.ask(before=mount)
        self.status(findings, "shared_memory", "warning", "no room for rings")

    def test_full_and_read_only_disk(self):
        disk = self.place / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True).returncode:
            self.skipTest("mounting needs root")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)])
        with open(disk / "ballast", "wb") as ballast:
            try:
                ballast.write(b"\0" * (2 << 20))
            except OSError:
                pass
        code, findings = self.ask("--output", str(disk / "run"))
        self.assertEqual(code, 5)
        self.status(findings, "scratch", "blocker", "no space")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        _, findings = self.ask("--output", str(disk / "run"))
        self.status(findings, "scratch", "blocker", "cannot be written")
        self.assertEqual(os.listdir(disk), ["ballast"])

    def test_programs(self):
        _, findings = self.ask("--program", "true")
        self.status(findings, "program", "ok")
        source = self.place / "main.c"
        source.write_text("int main(void) { return 0; }\n")
        if subprocess.run(["cc", "-static", "-o", str(self.place / "static"), str(source)], capture_output=True).returncode == 0:
            code, findings = self.ask("--program", str(self.place / "static"))
            self.assertEqual(code, 5)
            self.status(findings, "program", "blocker", "linked statically")
        if os.path.exists(jobs.BUILD / "ddp_mpi"):
            _, findings = self.ask("--program", str(jobs.BUILD / "ddp_mpi"))
            self.status(findings, "program", "ok", "libmpi.so.40")

    def run_job(self, *program):
        run = self.place / "run"
        return run, jobs.run([jobs.LOCKSTEP, "run", "--quiet", "--after", "none", "-o", run, "--", *program], cwd=self.place)

    def test_runs(self):
        run, done = self.run_job(MARKER, "n", "100")
        self.assertEqual(done.returncode, 0)
        before = sorted(os.listdir(run))
        _, findings = self.ask(str(run))
        self.status(findings, "run_ranks", "ok", "1 of 1 rank")
        self.status(findings, "run_losses", "ok")
        self.status(findings, "run_steps", "warning", "no steps")
        self.assertEqual(sorted(os.listdir(run)), before, "doctor only looks")
        (run / "ranks/rank-00000.h5").unlink()
        code, findings = self.ask(str(run))
        self.assertEqual(code, 5)
        self.status(findings, "run_ranks", "blocker")

    def test_killed_run(self):
        run, done = self.run_job(MARKER, "n", "1000", "0", "kill")
        self.assertEqual(done.returncode, -9)
        _, findings = self.ask(str(run))
        self.status(findings, "run_ranks", "warning", "signal 9")
        self.assertTrue((run / "ranks/rank-00000.spool").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
