"""docs/tutorial.md and README.md: every command in them is run, and what they quote is what is printed.

usage: tutorial_test.py BUILD_DIR CASE

A block begins with "$ COMMAND". The lines below are the command's output, `...` alone on a line stands for lines left
out: what lies between two of these must be printed, line after line, and the parts in this order. A block that does not
begin or end with `...` begins or ends with the output's first or last line.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import mpi_sessions  # noqa: E402, F401

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[3]
PAGE = SOURCE / "docs/tutorial.md"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_") and key not in ("COLUMNS", "LC_CTYPE", "LANG")}
# What the first finding of each run is, and what it names.
CAUSES = {"late_rank": ("straggler.", "rank", 5), "small_buckets": ("buckets.", "rank", None), "input": ("input.", "rank", None),
          "slow_link": ("link.slow", "hosts", ["node2", "node3"])}


def blocks(text):
    """(line in the page, command, quoted lines) of each."""
    for found in re.finditer(r"^```console\n\$ ([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, found.start()) + 2, found[1], found[2].splitlines()


def difference(quoted, printed):
    """None, or the first quoted line that is not printed there."""
    at, part, after_gap = 0, [], False

    def place(part, start, anywhere):
        last = len(printed) - len(part)
        for begin in range(start, (last if anywhere else min(start, last)) + 1):
            if printed[begin:begin + len(part)] == part:
                return begin + len(part)
        return None

    for line in [*quoted, None]:
        if line is not None and line != "...":
            part.append(line.rstrip())
            continue
        if part:
            end = place(part, at, after_gap)
            if end is None:
                return next((one for one in part if one not in printed[at:]), part[0])
            at, part = end, []
        after_gap = line == "..."
    if quoted and quoted[-1] != "..." and at != len(printed):
        return f"the end: {printed[at]}"
    return None


def wrong(text, place):
    """What the page says and the commands do not, as 'line: ..' each; and how many blocks there are."""
    found, count = [], 0
    for line, command, quoted in blocks(text):
        count += 1
        words = shlex.split(command)
        if words[0] != "lockstep":
            found.append(f"{line}: not a command of lockstep: {command}")
            continue
        done = subprocess.run([BUILD / "lockstep", *words[1:]], cwd=place, capture_output=True, text=True, timeout=60, env={**CLEAN, "LC_ALL": "C.UTF-8"})
        if done.returncode != 0:
            found.append(f"{line}: exit {done.returncode}: {command}\n{done.stderr}")
            continue
        printed = [one.rstrip() for one in done.stdout.splitlines()]
        if (lie := difference(quoted, printed)) is not None:
            found.append(f"{line}: {command}\n  does not print  {lie}\n  but\n{done.stdout}")
    return found, count


def make(place):
    done = subprocess.run([SOURCE / "examples/tutorial/make", BUILD, place], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise AssertionError(done.stderr)


def tutorial(place):
    make(place)
    text = PAGE.read_text(encoding="utf-8")
    found, count = wrong(text, place)
    if found:
        raise AssertionError("docs/tutorial.md is not what is printed:\n" + "\n".join(found))
    fences = len(re.findall(r"^```console$", text, re.MULTILINE))
    if count != fences or count < 8:
        raise AssertionError(f"{count} of {fences} blocks begin with a command")
    # The answer that a reader is led to, as the machine-readable result has it.
    for run, (finding, key, value) in CAUSES.items():
        first = json.loads((place / run / "analysis.json").read_text())["findings"][0]
        if not first["id"].startswith(finding) or first[key] != value:
            raise AssertionError(f"{run}: {first['id']}, {key} {first[key]}")


def finds_lies(place):
    """The check itself: a number, an order, a line that is left out without saying so, an end that is none."""
    make(place)
    block = "```console\n$ lockstep whatif late_rank -q --without-rank 5\n{}\n```\n"
    command = [BUILD / "lockstep", "whatif", "late_rank", "-q", "--without-rank", "5"]
    printed = subprocess.run(command, cwd=place, capture_output=True, text=True, env={**CLEAN, "LC_ALL": "C.UTF-8"}).stdout.splitlines()
    a, b = (i for i, line in enumerate(printed) if line.startswith(("as recorded", "without what")))
    true = [printed, [printed[0], "..."], ["...", printed[a], "...", printed[-1]], ["...", printed[a], printed[b], "..."], ["..."]]
    lies = [[printed[b].replace("2.79", "2.80") if i == b else line for i, line in enumerate(printed)], ["...", printed[b], "...", printed[a], "..."],
            [line for i, line in enumerate(printed) if i != a], printed[:-1], printed[1:], ["...", printed[a]], [*printed, "more"], ["...", printed[a], "...", printed[a], "..."]]
    for quoted in true:
        found, _ = wrong(block.format("\n".join(quoted)), place)
        if found:
            raise AssertionError(f"true, and refused: {quoted}\n{found}")
    for quoted in lies:
        if not wrong(block.format("\n".join(quoted)), place)[0]:
            raise AssertionError(f"a lie, and not found: {quoted}")
    if not wrong(block.format("...").replace("--without-rank 5", "--without-rank 77"), place)[0]:
        raise AssertionError("a command that fails was not found")


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)


def readme(place):
    """What it quotes is printed; commands for a job of the reader's own run with a small job; ./bootstrap has those that are named."""
    text = (SOURCE / "README.md").read_text(encoding="utf-8")
    found, count = wrong(text, place)
    if found or count < 1:
        raise AssertionError("README.md is not what is printed:\n" + "\n".join(found))
    bin_dir = place / "bin"
    bin_dir.mkdir()
    root = " --allow-run-as-root" if os.geteuid() == 0 else ""
    ddp = f"{BUILD}/ddp_mpi --steps 4 --step-ms 5 --quiet"
    executable(bin_dir / "mpirun", f'#!/bin/sh\nshift 2\nexec {shutil.which("mpirun")}{root} --oversubscribe -np 2 "$@"\n')
    executable(bin_dir / "torchrun", "#!/bin/sh\nexec /usr/bin/python3 -m torch.distributed.run --standalone --nproc_per_node 2 -r 1 -t 1 train.py\n")
    (place / "train.py").write_text(f"import runpy, sys\nsys.path.insert(0, '{SOURCE}/examples/torch')\n"
                                    f"sys.argv[1:] = ['--plain-gloo', '--steps', '4']\nrunpy.run_path('{SOURCE}/examples/torch/ddp_train.py', run_name='__main__')\n")
    executable(place / "app", f"#!/bin/sh\nexec {ddp}\n")
    subprocess.run([BUILD / "lockstep", "demo"], cwd=place, env=CLEAN, capture_output=True, check=True)
    subprocess.run([BUILD / "lockstep", "demo", "small-buckets"], cwd=place, env=CLEAN, capture_output=True, check=True)
    for name, demo in (("RUN", "late-rank"), ("BASE", "late-rank"), ("NEW", "small-buckets")):
        shutil.copytree(place / f"lockstep.out/demo-{demo}", place / name)
    subprocess.run([BUILD / "lockstep", "export", "RUN", "--format", "kineto", "-o", "traces"], cwd=place, env=CLEAN, capture_output=True, check=True)
    environment = {**CLEAN, "PATH": f"{bin_dir}:{BUILD}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    usage = subprocess.run([SOURCE / "bootstrap", "--help"], capture_output=True, text=True).stdout
    lines = [line.split("  #")[0].split("  ")[0].rstrip() for language, block in
             re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if not language for line in block.splitlines()]
    for line in filter(None, lines):
        if line.startswith("./bootstrap"):
            if f" {line.split()[1]} " not in usage.replace("\n", " "):
                raise AssertionError(f"README.md: there is no {line}")
            continue
        done = subprocess.run(["sh", "-c", line], cwd=place, env=environment, capture_output=True, text=True, timeout=300)
        if done.returncode not in (0, 3):
            raise AssertionError(f"README.md: {line}\n  exit {done.returncode}\n{done.stderr}")


CASES = {"Tutorial": tutorial, "FindsLies": finds_lies, "Readme": readme}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        CASES[sys.argv[2]](pathlib.Path(directory))
    print(f"{sys.argv[2]}: passed")
