"""What importing a torch.profiler trace costs, beside Python's json module on the same file."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

# One rank of a job as the golden ones are: forward, backward with overlapping buckets, optimizer.
SPEC = """ranks 2
steps {steps}
gpu
seed 7
network alpha=20us bandwidth=20GB/s
jitter 1%
step
  input 300us
  copy h2d 4MiB
  kernel 40us count=60 name=gemm_forward
  kernel 40us count=40 name=gemm_backward
  nccl allreduce 25MiB
  kernel 40us count=40 name=gemm_backward
  nccl allreduce 25MiB
  join
  kernel 20us count=20 name=adam
  sync
  host 200us
end
"""
JSON_LOADS = "import json, sys; print(len(json.loads(open(sys.argv[1]).read())['traceEvents']))"


def peak_mib(pid):
    """VmHWM: rusage's peak would count this process too, as it was when it forked."""
    try:
        line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    except (OSError, StopIteration):
        return 0


def measured(command):
    """Standard output, seconds, CPU seconds and peak MiB of a command; None if it failed."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begin = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], stdout=output, stderr=errors)
        peak, ended = 0, 0
        while ended == 0:
            time.sleep(0.002)
            peak = max(peak, peak_mib(process.pid))
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode not in (0, 3):
            print(errors.read(), file=sys.stderr)
            return None
        return output.read(), seconds, usage.ru_utime + usage.ru_stime, peak


def make_trace(build, where, steps, words):
    (where / "job.run").write_text(SPEC.format(steps=steps))
    out = where / f"made-{steps}-{len(words)}"
    subprocess.run([build / "make_run", where / "job.run", out, "--kineto", words], check=True)
    return sorted(path for path in out.rglob("*") if path.is_file() and ".json" in path.name and path.name != "manifest.json")[0]


def table(build, megabytes, row):
    programs = [build / name for name in ("make_run", "kineto_read", "lockstep")]
    if not all(program.exists() for program in programs):
        row("import", "make_run, kineto_read or lockstep is not built", "")
        return
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-", dir="/dev/shm" if shutil.disk_usage("/dev/shm").free > megabytes * 4e6 else None) as directory:
        where = pathlib.Path(directory)
        few = 20
        steps = max(few, int(megabytes * 1e6 / make_trace(build, where, few, "time=ns").stat().st_size * few))
        traces = {"pretty": make_trace(build, where, steps, "time=ns"), "minified": make_trace(build, where, steps, "time=ns minified"),
                  "gz": make_trace(build, where, steps, "time=ns gz")}
        cores = len(os.sched_getaffinity(0))
        for name, trace in traces.items():
            read = measured([build / "kineto_read", trace, cores])
            if read is None:
                continue
            events, json_bytes = (int(word) for word in read[0].split()[:2])

            def speed(result):
                return (f"{events / result[1] / 1e6:.2f} M events/s, {json_bytes / result[1] / 1e6:.0f} MB/s, "
                        f"{1e9 * result[2] / events:.0f} ns CPU/event, {result[3] / (json_bytes / 2**20):.2f} x JSON")

            print(f"  {name}: {events} events, {json_bytes / 1e6:.0f} MB of JSON, {json_bytes / events:.0f} bytes each, {cores} cores")
            row("lockstep reader alone", speed(read), "")
            imported = measured([build / "lockstep", "import", "kineto", trace, "-o", where / f"run-{name}"])
            if imported is not None:
                row("lockstep import kineto", speed(imported), "3 M events/s, 800 MB/s, below 2 x JSON")
            if name == "pretty":
                loads = measured([sys.executable if sys.executable else "/usr/bin/python3", "-c", JSON_LOADS, trace])
                if loads is not None:
                    row("Python json.loads", speed(loads), "")
