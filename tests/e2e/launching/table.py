"""Runs a small training under each launcher, with Lockstep, and prints what was recorded as the table of docs/launchers.md.

usage: table.py BUILD_DIR [--python PYTHON] [--ranks N] [--only WORDS] [--verbose]

PYTHON is an interpreter with PyTorch (default /usr/bin/python3). A launcher is looked for beside it, then in PATH; rows
whose launcher is not there are said to be left out. Exit code 1: in some row not every rank was recorded.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import torch_abort  # noqa: E402

TRAIN = str(pathlib.Path(__file__).resolve().parent / "train.py")
PRIVATE = ("LOCKSTEP_", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def rows(python, torchrun, ranks, place):
    """(what is shown, what is run, ranks): {n} ranks, {run} is `lockstep run --`, {train} the script with its options."""
    tool = lambda name: str(pathlib.Path(python).parent / name)  # noqa: E731
    port = free_port()
    # The torchrun of PyTorch 1.13 fails with Python 3.11 where its workers' output goes nowhere.
    logs = ["-r", "1", "-t", "1", "--log_dir", place + "/logs"]
    at = ["--nproc_per_node", str(ranks), "--master_port", str(port), *logs]
    return [
        ("torchrun --nproc-per-node {n} --no-python lockstep run -- python train.py",
         [*torchrun, *at, "--no_python", "{lockstep}", "run", "--", python, TRAIN], ranks),
        ("lockstep run -- torchrun --nproc-per-node {n} train.py", ["{lockstep}", "run", "--", *torchrun, *at, TRAIN], ranks),
        ("lockstep run -- python -m torch.distributed.run --nproc-per-node {n} train.py",
         ["{lockstep}", "run", "--", python, "-m", "torch.distributed.run", *at, TRAIN], ranks),
        ("lockstep run -- python -m torch.distributed.launch --nproc-per-node {n} train.py",
         ["{lockstep}", "run", "--", python, "-m", "torch.distributed.launch", *at, TRAIN], ranks),
        ("lockstep run -- sh script (with torchrun in it)",
         ["{lockstep}", "run", "--", "sh", "-c", " ".join(f"'{word}'" for word in [*torchrun, *at, TRAIN])], ranks),
        ("lockstep run -- python x.py (torch.multiprocessing.spawn)",
         ["{lockstep}", "run", "--", python, TRAIN, "spawn", "--nprocs", str(ranks)], ranks),
        ("lockstep run -- sh script (python ... & for each rank, init_method=\"tcp://...\")",
         ["{lockstep}", "run", "--", "sh", "-c",
          "".join(f"'{python}' '{TRAIN}' tcp --nprocs {ranks} --rank {r} --where 127.0.0.1:{port} & "
                  for r in reversed(range(ranks))) + "wait"], ranks),
        ("lockstep run -- accelerate launch --multi_gpu --num_processes {n} train.py",
         ["{lockstep}", "run", "--", tool("accelerate"), "launch", "--multi_gpu", "--num_processes", str(ranks),
          "--num_machines", "1", "--main_process_port", str(port), "--mixed_precision", "no", "--dynamo_backend", "no",
          "--num_cpu_threads_per_process", "1", TRAIN, "accelerate"], ranks),
        ("lockstep run -- deepspeed --num_gpus {n} train.py",
         ["{lockstep}", "run", "--", tool("deepspeed"), "--num_gpus", str(ranks), "--master_port", str(port), TRAIN],
         ranks),
        ("mpirun -np {n} lockstep run -- python train.py (init_method=\"file://...\", rank from OMPI_COMM_WORLD_RANK)",
         ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), "{lockstep}", "run", "--", "sh", "-c",
          f"exec '{python}' '{TRAIN}' file --nprocs {ranks} --rank $OMPI_COMM_WORLD_RANK --where {place}/meet"], ranks),
        ("lockstep run -- python train.py (no process group)", ["{lockstep}", "run", "--", python, TRAIN, "none"], 1),
    ]


def measure(lockstep, python, words, cwd):
    """(exit code, {ranks, expected, steps, verdict's exit code, run directories})"""
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith(PRIVATE) and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR")}
    environment.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PYTHONWARNINGS="ignore")
    environment["PATH"] = os.path.dirname(python) + ":" + environment["PATH"]  # Launchers look for python themselves.

    def clear():
        shutil.rmtree(cwd + "/lockstep.out", ignore_errors=True)
        pathlib.Path(cwd, "../meet").unlink(missing_ok=True)
    done = torch_abort.once_more_if_aborted(
        lambda: subprocess.run([w.replace("{lockstep}", lockstep) for w in words], cwd=cwd, env=environment, timeout=300,
                               capture_output=True, text=True, errors="replace"), clear)
    runs = [p for p in pathlib.Path(cwd, "lockstep.out").glob("2*") if p.is_dir()]
    found = {"runs": len(runs), "ranks": 0, "expected": 0, "steps": 0, "verdict": None, "said": done.stderr}
    for run in runs[:1]:
        judged = subprocess.run([lockstep, "analyze", str(run), "--json", "-"], cwd=cwd, capture_output=True)
        found["verdict"] = judged.returncode
        try:
            facts = json.loads(judged.stdout)["run"]
            found.update(ranks=facts["ranks"], expected=facts["ranks_expected"], steps=facts["steps"])
        except ValueError:
            found["said"] += judged.stderr.decode(errors="replace")
    return done.returncode, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    lockstep = str(pathlib.Path(a.build).resolve() / "lockstep")
    beside = pathlib.Path(a.python).parent / "torchrun"
    torchrun = [str(beside)] if beside.exists() else [shutil.which("torchrun") or "torchrun"]
    version = subprocess.run([a.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    if version.returncode != 0:
        sys.exit(f"no PyTorch in {a.python}")
    version = re.match(r"[0-9]+\.[0-9]+", version.stdout).group()
    print("| command | PyTorch | ranks recorded | world size | steps | run directories | exit codes: program, verdict |")
    print("|---|---|---|---|---|---|---|")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-launchers-") as place:
        for number, (shown, words, ranks) in enumerate(rows(a.python, torchrun, a.ranks, place)):
            shown = shown.replace("{n}", str(ranks))
            if a.only not in shown:
                continue
            program = words[0] if words[0] != "{lockstep}" else words[3]
            if not (os.path.exists(program) or shutil.which(program)):
                print(f"left out, {program} is not there: {shown}", file=sys.stderr)
                continue
            cwd = os.path.join(place, str(number))
            os.mkdir(cwd)
            code, found = measure(lockstep, a.python, words, cwd)
            print(f"| `{shown}` | {version} | {found['ranks']} of {ranks} | {found['expected']} | {found['steps']} | "
                  f"{found['runs']} | {code}, {found['verdict']} |", flush=True)
            wrong = code != 0 or (found["ranks"], found["expected"], found["runs"]) != (ranks, ranks, 1) or not found["steps"]
            bad += wrong
            if wrong or a.verbose:
                print(found["said"][-3000:], file=sys.stderr)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
