#!/usr/bin/env python3
"""Makes seeds with the real programs, then runs fuzz_readers on them.

usage: fuzz.py BUILD_DIR [--seconds 20] [--jobs 1] [--seed 1] [--inputs N] [--only TARGET] [--keep DIR]
       fuzz.py BUILD_DIR --replay N    N inputs for each reader, the same each time, without sanitizers (replay_readers)
"""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[1]
CASES = ["two_ranks", "mixed_mpi", "gpu_ddp", "wait_only_progress", "late_ring"]


def run_directories(build, seeds):
    for case in CASES:
        spec = SOURCE / "golden/cases" / case / "run.trace"
        out = seeds / case
        # Small: what makes a reader fail in a thousand rows does so in ten.
        subprocess.run([build / "make_run", spec, out, "--set", "ranks=2", "--set", "steps=6"], check=True)
        subprocess.run([build / "lockstep", "merge", out], check=True, capture_output=True)


def gpu(build, seeds):
    """Two ranks on NCCL, which no machine without GPU could have run."""
    if not (build / "tests/gpu_seeds").exists():
        return
    subprocess.run([build / "tests/gpu_seeds", seeds], check=True)
    subprocess.run([build / "lockstep", "merge", seeds / "gpu_nccl"], check=False, capture_output=True)


def spools(build, seeds):
    """Jobs that end badly leave spools as they are; killed agents leave segments too."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OMPI_", "PMIX_"))}
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
    tests = build / "tests"
    fails = ["sh", "-c", '"$@"; exit 3', "sh"]
    jobs = {  # Launcher, program, seconds until everything is killed.
        "killed": ([], [tests / "e2e_marker", seeds / "count", "1000000000", "1000"], 1.0),
        "training": (mpirun, [build / "ddp_mpi", "--quiet", "--steps", "100000", "--layers", "4"], 2.0),
        "kinds": ([], [*fails, tests / "probe_kinds"], 10),
        "counted": (mpirun, [*fails, tests / "counted", seeds / "counted", "20"], 10),
    }
    for name, (launcher, program, seconds) in jobs.items():
        if not pathlib.Path(next(word for word in program if isinstance(word, pathlib.Path))).exists():
            continue
        out = seeds / f"job-{name}"
        agent = [build / "lockstep", "run", "--after", "none", "--quiet", "--ring-size", "16384", "--ring-total",
                 "1048576", "-o", out, "--"]
        job = subprocess.Popen([str(word) for word in [*launcher, *agent, *program]], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            job.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            subprocess.run(["pkill", "-KILL", "-f", str(out)])
            job.wait()
        for index, spool in enumerate(sorted((out / "ranks").glob("*.spool"))):
            whole = spool.read_bytes()
            (seeds / f"{name}-{index}.spool").write_bytes(whole[:20_000])
            for segment in pathlib.Path("/dev/shm").glob("lockstep-*"):
                if segment.is_file() and str(segment).encode() in whole:
                    (seeds / f"{name}-{index}.ring").write_bytes(segment.read_bytes())
        subprocess.run([build / "lockstep", "merge", out], capture_output=True)  # Takes the segments away.
        shutil.rmtree(out, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--only")
    parser.add_argument("--replay", type=int)
    parser.add_argument("--keep", type=pathlib.Path, help="work here and keep what is there")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.replay:
        options.seconds, options.inputs = 3600, options.replay
    fuzzer = build / "tests" / ("replay_readers" if options.replay else "fuzz_readers")
    if not options.replay and not fuzzer.exists():
        print("skipped: fuzz_readers is not built (cmake --build BUILD --target fuzzers)")
        return 77
    where = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="lockstep-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    seeds = where / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    if not any(seeds.iterdir()):
        run_directories(build, seeds)
        gpu(build, seeds)
        if not options.replay:  # These differ from run to run.
            spools(build, seeds)
    command = [fuzzer, seeds, where / "work", "--seconds", options.seconds, "--jobs", options.jobs, "--seed", options.seed]
    if options.inputs:
        command += ["--inputs", options.inputs]
    if options.only:
        command += ["--only", options.only]
    environment = dict(os.environ, ASAN_OPTIONS="abort_on_error=0:detect_leaks=0:allocator_may_return_null=1",
                       UBSAN_OPTIONS="print_stacktrace=1")
    done = subprocess.run([str(word) for word in command], env=environment)
    if done.returncode == 0 and not options.keep:
        shutil.rmtree(where, ignore_errors=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
