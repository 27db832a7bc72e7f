"""The folder for GPU machines where none of the project's libraries is: a mount namespace hides them, this tree and its
build. It works there, and its calls say that there is no GPU: there, and within a second in a root that has Python and
nothing else (packaging/from_nothing). folder_test.py BUILD"""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import calls  # noqa: E402
import machine  # noqa: E402

SOURCE = HERE.parents[1]
MOST_BYTES = 64 * 1000 * 1000
ROOT = "LOCKSTEP_FOLDER_TEST_ROOT"
# Beside what the built programs name: whatever else of the kinds that Lockstep uses lies in the system's folders.
HIDDEN = re.compile(r"lib(hdf5|sz|aec|fmt|spdlog|tbb|simdjson|boost|nettle|deflate|otf2|open-trace|mpi|open-rte|open-pal|"
                    r"pmix|hwloc|event|cupti|nccl|cudart|cuda)[^/]*\.so[.\d]*$")
SYSTEM = re.compile(r"/(libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+|libz|ld-linux[^/]*)\.so")

# Of root of the namespace: hides, proves that it hid, and runs the calls.
INSIDE = r"""
set -e
empty=$1; folder=$2; plain=$3; out=$4; source=$5; build=$6; python=$7
while read -r file; do mount --bind "$empty" "$file"; done
for directory in /usr/lib/python3/dist-packages /usr/local/lib/python3*/dist-packages "$source"; do
  if [ -d "$directory" ]; then mount -t tmpfs none "$directory"; fi
done
if [ -d "$build" ]; then mount -t tmpfs none "$build"; fi
cd /
unset LD_LIBRARY_PATH
code=0; "$plain" --version >/dev/null 2>"$out/plain.txt" || code=$?
echo "plain $code" >"$out/codes"
code=0; "$folder/build/lockstep" --version >"$out/version.txt" 2>&1 || code=$?
echo "folder $code" >>"$out/codes"
ldd "$folder/build/lockstep" >"$out/ldd.txt"
(cd "$out"; "$folder/build/lockstep" doctor >doctor.txt 2>&1) || true
for call in 1 2 3; do
  code=0; OUT="$out/results" "$folder/call-$call" --python "$python" >"$out/call-$call.txt" 2>&1 || code=$?
  echo "call-$call $code" >>"$out/codes"
done
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def need(true, what):
    if not true:
        print("FAILED:", what)
        sys.exit(1)


def namespace_command():
    words = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") is None:
        skip("no unshare (util-linux)")
    tried = subprocess.run([*words, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    if tried.returncode != 0:
        skip(f"mount namespaces are not allowed here: {tried.stderr.strip()}")
    return words


def hidden_files(build):
    """Every library that the built programs use or that is of their kinds, by its real path, and Open MPI's launcher."""
    files = set()
    for program in ("lockstep", "lockstep-clock", "lockstep-merge-mpi"):
        if (build / program).exists():
            said = subprocess.run(["ldd", str(build / program)], capture_output=True, text=True).stdout
            files.update(path for path in re.findall(r"=> (/\S+)", said) if not SYSTEM.search(path))
    for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"):
        for path in pathlib.Path(directory).rglob("*.so*") if pathlib.Path(directory).exists() else ():
            if HIDDEN.search(path.name):
                files.add(str(path))
    files.update(filter(None, map(shutil.which, ("mpirun", "nvcc"))))
    real = {os.path.realpath(file) for file in files}
    return sorted(file for file in real if os.path.isfile(file))


def bare_root(root, packed):
    """Runs the calls in a root with this Python alone. Prints {call: [exit code, seconds, the last lines]}."""
    loader = importlib.machinery.SourceFileLoader("from_nothing", str(SOURCE / "packaging/from_nothing"))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader("from_nothing", loader))
    loader.exec_module(made)
    packages = root.with_name(root.name + "-packages")  # Of the interpreter: none.
    packages.mkdir()
    made.places_of = lambda python: (
        [pathlib.Path(sysconfig.get_path("stdlib"))], pathlib.Path(os.path.realpath(python)), packages)
    program, _ = made.make_root(root, argparse.Namespace(python=sys.executable, wheel=packed))
    os.chroot(root)
    os.chdir("/work")
    with tarfile.open(pathlib.Path(packed).name) as archive:
        archive.extractall()
    found = {}
    for number, call in enumerate(calls.CALLS, 1):
        begin = time.monotonic()
        done = subprocess.run([str(program), f"gpu-checks/call-{number}"], env={"OUT": "/work/out", "PATH": "/none"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found[call] = [done.returncode, round(time.monotonic() - begin, 2), done.stdout[-600:]]
    print(json.dumps(found))


def without_anything(words, packed, place):
    """bare_root, thrice: how long a call takes is the least, what else is told by all."""
    words = [*words, "--pid", "--fork", "--kill-child", sys.executable, __file__, packed]
    for turn in range(3):
        root = place / f"root{turn}"
        root.mkdir()
        done = subprocess.run(words, env={**os.environ, ROOT: str(root)}, capture_output=True, text=True, timeout=120)
        need(done.returncode == 0, done.stdout + done.stderr)
        found = json.loads(done.stdout)
        for call, (code, _, text) in found.items():
            need(code == 77 and "no driver" in text, f"{call} ends with {code}: {text}")
        seconds = {call: min(of[1], seconds[call]) if turn else of[1] for call, of in found.items()}
    need(all(least < 1 for least in seconds.values()), f"that there is no GPU is not said within a second: {seconds}")
    return seconds


def main(build):
    build = build.resolve()
    for tool in ("patchelf", "strip", "readelf"):
        if shutil.which(tool) is None:
            skip(f"no {tool}")
    if not (build / "tests/gpu_replay").exists():
        skip("tests/gpu_replay is not built")
    if machine.driver()[0] > 0:
        skip("a GPU is here, and the calls would use it")
    words = namespace_command()
    with tempfile.TemporaryDirectory(prefix="lockstep-folder-") as place:
        place = pathlib.Path(place)
        packed = subprocess.run([str(HERE / "pack"), str(build), str(place / "made/gpu-checks")], capture_output=True, text=True)
        need(packed.returncode == 0, packed.stderr)
        print(packed.stdout, end="")
        size = sum(path.stat().st_size for path in (place / "made/gpu-checks").rglob("*") if path.is_file())
        need(size < MOST_BYTES, f"the folder has {size} bytes")
        print("no GPU, in a root with Python alone, said after", without_anything(
            words, str(place / "made/gpu-checks.tar.gz"), place))
        # As it is taken there: unpacked somewhere else.
        subprocess.run(["tar", "-C", str(place), "-xzf", str(place / "made/gpu-checks.tar.gz")], check=True)
        folder, out = place / "gpu-checks", place / "out"
        out.mkdir()
        shutil.rmtree(place / "made")
        shutil.copy2(build / "lockstep", place / "plain")
        (place / "empty").touch()
        hidden = hidden_files(build)
        need(len(hidden) >= 8, f"only {hidden} would be hidden")
        # A python3 that stays: that of a machine without packages.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "OUT", "PYTHON"))}
        environment["PATH"] = "/usr/bin:/bin"
        done = subprocess.run([*words, "bash", "-c", INSIDE, "inside", str(place / "empty"), str(folder), str(place / "plain"),
                               str(out), str(SOURCE), str(build), "/usr/bin/python3"],
                              input="\n".join(hidden) + "\n", env=environment, capture_output=True, text=True, timeout=240)
        need(done.returncode == 0, done.stderr + done.stdout)
        codes = dict(line.rsplit(" ", 1) for line in (out / "codes").read_text().splitlines())
        need(int(codes["plain"]) != 0, "lockstep as it was built starts: its libraries are not hidden")
        print(f"{len(hidden)} libraries and programs hidden; as built: {(out / 'plain.txt').read_text().strip()}")
        need(codes["folder"] == "0", (out / "version.txt").read_text())
        for number, call in enumerate(calls.CALLS, 1):
            text = (out / f"call-{number}.txt").read_text()
            lines = [json.loads(line) for line in (out / f"results/{call}.jsonl").read_text().splitlines()]
            checks = {line["name"]: line for line in lines if line["type"] == "check"}
            end = lines[-1]
            found = next(line for line in lines if line["type"] == "machine")
            need(codes[f"call-{number}"] == "77" and end["type"] == "end" and end["code"] == 77, text[-2000:])
            need(re.match("no (driver|GPU)", found["text"]), found)
            need(list(checks) == [name for name, _ in calls.CALLS[call]], text[-2000:])
            need(lines[-2] == {**lines[-2], "type": "not_tested", "text": list(calls.NOT_TESTED)}, lines[-2])
            need(all(what in text for what in calls.NOT_TESTED), text[-2000:])
            for name, line in checks.items():
                need(line["result"] == "SKIP" and line["why"] == found["text"], line)
                need(f"SKIP  {name}" in text, text[-2000:])
            need((out / f"results/{call}.txt").exists(), f"{call}.txt is not there")
        facts = {line["name"]: line["text"] for line in
                 map(json.loads, (out / "results/correctness.jsonl").read_text().splitlines()) if line["type"] == "fact"}
        # What takes longer than a look is asked where there is a GPU.
        need("doctor" not in facts and "python3" in facts["interpreter"], facts)
        need("not found" not in (out / "ldd.txt").read_text(), (out / "ldd.txt").read_text())
        # Its self-test records a program and reads the file back.
        doctor = (out / "doctor.txt").read_text()
        need("a program that was run under Lockstep was recorded" in doctor, doctor)
        need("a rank file was written and read back" in doctor, doctor)
        print((out / "call-1.txt").read_text()[-600:])
    print("the folder alone ran to its end where the libraries, the sources and the build were hidden")


if __name__ == "__main__":
    if ROOT in os.environ:
        bare_root(pathlib.Path(os.environ[ROOT]), sys.argv[1])
    else:
        main(pathlib.Path(sys.argv[1]))
