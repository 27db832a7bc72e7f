"""Runs a small training under each launcher, with Lockstep, and prints what was recorded as the table of docs/launchers.md.

usage: table.py BUILD_DIR [--python PYTHON] [--ranks N] [--only WORDS] [--without PACKAGE,...] [--verbose]

PYTHON is an interpreter with PyTorch (default /usr/bin/python3); its launchers are looked for beside it. Frameworks
(lightning, accelerate, transformers, deepspeed) are those that it imports; cmake/torch_frameworks.txt says how to have all
of them. Exit code 1: in some row not every rank or step was recorded; 2: some rows were left out because something is
missing that --without does not name.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import torch_abort  # noqa: E402

TRAIN = str(pathlib.Path(__file__).resolve().parent / "train.py")
FRAMEWORK_TRAIN = str(pathlib.Path(__file__).resolve().parent / "framework_train.py")
STEPS = 12
PRIVATE = ("LOCKSTEP_", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def rows(python, torchrun, ranks, place):
    """(what is shown, what is run, ranks, steps, package or None): {n} ranks, {lockstep} the program."""
    return [(*row, STEPS, None) for row in launchers(python, torchrun, ranks, place)] + frameworks(python, ranks, place)


def frameworks(python, ranks, place):
    tool = lambda name: str(pathlib.Path(python).parent / name)  # noqa: E731
    at = ["--master_port", str(free_port())]
    of = lambda name, *more: [FRAMEWORK_TRAIN, name, "--nprocs", str(ranks), "--steps", str(STEPS), *more]  # noqa: E731
    alone = ["{lockstep}", "run", "--", python]
    torchrun = [*alone, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), *at, "-r", "1", "-t", "1", "--log_dir",
                place + "/logs"]
    return [
        ("lockstep run -- accelerate launch --multi_gpu --num_processes {n} train.py (Accelerator.prepare)",
         ["{lockstep}", "run", "--", tool("accelerate"), "launch", "--multi_gpu", "--num_processes", str(ranks),
          "--num_machines", "1", "--main_process_port", at[1], "--mixed_precision", "no", "--dynamo_backend", "no",
          "--num_cpu_threads_per_process", "1", *of("accelerate")], ranks, STEPS, "accelerate"),
        ("lockstep run -- deepspeed --num_gpus {n} train.py (deepspeed.initialize, ZeRO stage 1)",
         ["{lockstep}", "run", "--", tool("deepspeed"), "--num_gpus", str(ranks), *at, *of("deepspeed")], ranks, STEPS,
         "deepspeed"),
        ('lockstep run -- python train.py (Lightning, strategy="ddp")', [*alone, *of("lightning")], ranks, STEPS, "lightning"),
        ('lockstep run -- python train.py (Lightning, strategy="ddp_spawn")', [*alone, *of("lightning-spawn")], ranks, STEPS,
         "lightning"),
        ("lockstep run -- torchrun --nproc-per-node {n} train.py (Lightning, LightningCallback of 4 steps)",
         [*torchrun, *of("lightning", "--callback")], ranks, 4, "lightning"),
        ("lockstep run -- torchrun --nproc-per-node {n} train.py (Hugging Face Trainer)", [*torchrun, *of("trainer")], ranks,
         STEPS, "transformers"),
        ("lockstep run -- torchrun --nproc-per-node {n} train.py (Hugging Face Trainer, TrainerCallback of 4 steps)",
         [*torchrun, *of("trainer", "--callback")], ranks, 4, "transformers"),
    ]


def launchers(python, torchrun, ranks, place):
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
        ("mpirun -np {n} lockstep run -- python train.py (init_method=\"file://...\", rank from OMPI_COMM_WORLD_RANK)",
         ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), "{lockstep}", "run", "--", "sh", "-c",
          f"exec '{python}' '{TRAIN}' file --nprocs {ranks} --rank $OMPI_COMM_WORLD_RANK --where {place}/meet"], ranks),
        ("lockstep run -- python train.py (no process group)", ["{lockstep}", "run", "--", python, TRAIN, "none"], 1),
    ]


def version_of(python, package):
    """Its first two numbers; None: it is not there."""
    done = subprocess.run([python, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"], capture_output=True,
                          text=True)
    found = re.match(r"[0-9]+\.[0-9]+", done.stdout)
    return found.group() if done.returncode == 0 and found else None


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

    def start():
        done = subprocess.run([w.replace("{lockstep}", lockstep) for w in words], cwd=cwd, env=environment, timeout=300,
                              capture_output=True, text=True, errors="replace")
        if done.returncode == 0 and torch_abort.TEXT in done.stdout + done.stderr:
            done.returncode = 128 + signal.SIGABRT  # Of a rank whose launcher does not look at how it ended.
        return done
    done = torch_abort.once_more_if_aborted(start, clear)
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
    parser.add_argument("--without", default="", help="frameworks and programs that need not be there")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    lockstep = str(pathlib.Path(a.build).resolve() / "lockstep")
    torch = version_of(a.python, "torch")
    if torch is None:
        sys.exit(f"no PyTorch in {a.python}")
    # That of the installation that has this PyTorch, which a virtual environment may share.
    place_of_torch = subprocess.run([a.python, "-c", "import torch; print(torch.__file__)"], capture_output=True, text=True)
    torchrun = [str(pathlib.Path(place_of_torch.stdout.strip()).parents[4] / "bin/torchrun")]
    print("| command | PyTorch | ranks recorded | world size | steps | run directories | exit codes: program, verdict |")
    print("|---|---|---|---|---|---|---|")
    bad, left_out = 0, 0
    with tempfile.TemporaryDirectory(prefix="lockstep-launchers-") as place:
        for number, (shown, words, ranks, steps, package) in enumerate(rows(a.python, torchrun, a.ranks, place)):
            shown = shown.replace("{n}", str(ranks))
            if a.only not in shown:
                continue
            program = words[0] if words[0] != "{lockstep}" else words[3]
            version = torch if package is None else version_of(a.python, package)
            if version is None or not (os.path.exists(program) or shutil.which(program)):
                missing = package or os.path.basename(program)
                if missing not in a.without.split(","):
                    left_out += 1
                    print(f"left out, {a.python} has no {missing}: {shown}", file=sys.stderr)
                continue
            cwd = os.path.join(place, str(number))
            os.mkdir(cwd)
            code, found = measure(lockstep, a.python, words, cwd)
            print(f"| `{shown}` | {torch if package is None else f'{torch}, {package} {version}'} | {found['ranks']} of {ranks} | "
                  f"{found['expected']} | {found['steps']} | {found['runs']} | {code}, {found['verdict']} |", flush=True)
            wrong = code != 0 or (found["ranks"], found["expected"], found["runs"], found["steps"]) != (ranks, ranks, 1, steps)
            bad += wrong
            if wrong or a.verbose:
                print(found["said"][-3000:], file=sys.stderr)
    if left_out:
        print(f"{left_out} rows were left out: see above; --without accepts that", file=sys.stderr)
    sys.exit(1 if bad else 2 if left_out else 0)


if __name__ == "__main__":
    main()
