"""The GPU checks' own logic, on the tests' GPU: what must pass passes, and what is broken is found."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1]).resolve()
for part in ("lockstep", "liblockstep-gpu.so", "tests/e2e_gpu_job", "tests/gpu_job", "tests/gpu_replay"):
    if not (BUILD / part).exists():
        print(f"skipped: {part} is not built")
        sys.exit(77)


def run(env=None, *options):
    with tempfile.TemporaryDirectory() as place:
        out = os.path.join(place, "out.json")
        done = subprocess.run([sys.executable, HERE / "run", BUILD, "--fake", "--pairs", "1", "--json", out, *options],
                              env={**os.environ, **(env or {})}, capture_output=True, text=True)
        return done, json.load(open(out))["checks"]


def need(true, what):
    if not true:
        print("FAILED:", what)
        sys.exit(1)


done, checks = run()
print(done.stdout)
need(done.returncode == 0, done.stdout + done.stderr)
need({c["result"] for name, c in checks.items() if "torch" not in name and name != "under-mpirun"} == {"PASS"}, checks)
need({c["result"] for name, c in checks.items() if "torch" in name} == {"SKIP"}, checks)

# A driver that does not let the GPU be profiled: every check that needs it says so, and the others are run.
done, checks = run({"FAKE_CUPTI_FAIL": "cuptiActivityEnable=35"}, "--only", "versions,every-kernel-tied,sensors")
need(done.returncode == 1 and {c["result"] for c in checks.values()} == {"FAIL"}, checks)
need("state=refused" in checks["versions"]["why"], checks["versions"])
# A name that is none is an error of use, not a run without checks.
done = subprocess.run([sys.executable, HERE / "run", BUILD, "--only", "no-such-check"], capture_output=True, text=True)
need(done.returncode == 2 and "no check no-such-check" in done.stderr, done.stderr)
print("the checks pass on what is sound and fail on what is not")
