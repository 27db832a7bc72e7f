#!/usr/bin/env python3
"""What a wheel holds of Lockstep's programs: tree.py CMAKE BUILD_DIR PREFIX

Installs the build into PREFIX (the package's directory) and makes it depend on libc only: the shared libraries that the
program `lockstep` needs are copied into PREFIX/libs under names that no other library has, as auditwheel does it. The
C++ runtime is one of them: auditwheel leaves it to the system, and a system may have an older one or none. None of these
libraries gets into an application: what is loaded there (liblockstep*.so) needs nothing but libc. Programs that need
MPI stay out (component "mpi").
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

# Part of every system with glibc, and only usable with the kernel interface of its own libc.
LIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nsl|anl|BrokenLocale))\.so(\.\d+)*")
# Of the installed files these are for a system's own places.
UNWANTED = ["share"]


def output_of(*words):
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needed(path):
    return [name for name in output_of("patchelf", "--print-needed", path).split() if not LIBC.fullmatch(name)]


def places_of(path):
    """Where the dynamic linker finds what a program needs, directly or not: soname -> file."""
    places = {}
    for line in output_of("ldd", path).splitlines():
        match = re.match(r"\s*(\S+) => (.*) \(0x", line)
        if match:
            places[match.group(1)] = pathlib.Path(os.path.realpath(match.group(2)))
        elif "not found" in line:
            raise SystemExit("error: %s needs a library that is not here\n  %s\n  try: install it, and build again"
                             % (path, line.strip()))
    return places


def unique_name(soname, file):
    """libfmt.so.9 -> libfmt-1a2b3c4d.so.9, by the contents."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    stem, dot, rest = soname.partition(".so")
    return "%s-%s%s%s" % (stem, digest, dot, rest)


def licence_of(file):
    """Where the system has the licence of a library's package (Debian and what comes from it); None: nowhere known."""
    if shutil.which("dpkg-query") is None:
        return None
    # dpkg knows a file by the name it was installed under, /lib or /usr/lib.
    done = subprocess.run(["dpkg-query", "-S", "*/" + file.name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in done.stdout.splitlines():
        package, _, path = line.partition(": ")
        if os.path.realpath(path) == str(file):
            text = pathlib.Path("/usr/share/doc", package.split(":")[0], "copyright")
            return text if text.exists() else None
    return None


def bundle(program, libs):
    """Copies what `program` needs beyond libc into `libs`, each library once, and has it look there first."""
    places = places_of(program)
    names = {}
    waiting = needed(program)
    while waiting:
        soname = waiting.pop()
        if soname not in names:
            names[soname] = unique_name(soname, places[soname])
            waiting += needed(places[soname])
    (libs / "licenses").mkdir(parents=True, exist_ok=True)
    for soname, name in names.items():
        shutil.copy(places[soname], libs / name)
        (libs / name).chmod(0o755)
        licence = licence_of(places[soname])
        if licence is None:
            print("warning: no licence text found for %s: add it before you pass the wheel on" % soname, file=sys.stderr)
        else:
            shutil.copy(licence, libs / "licenses" / (soname.partition(".so")[0] + ".txt"))
    for file, path in [(program, "$ORIGIN/" + os.path.relpath(libs, program.parent))] + [
            (libs / name, "$ORIGIN") for name in names.values()]:
        words = []
        for soname in needed(file):
            words += ["--replace-needed", soname, names[soname]]
        if file != program:
            words += ["--set-soname", file.name]
        # RPATH, not RUNPATH: LD_LIBRARY_PATH of the job's environment must not put another version in their place.
        output_of("patchelf", *words, "--force-rpath", "--set-rpath", path, file)


def main(cmake, build, prefix):
    prefix = pathlib.Path(prefix)
    output_of(cmake, "--install", build, "--prefix", prefix, "--component", "Unspecified", "--strip")
    for name in UNWANTED:
        shutil.rmtree(prefix / name, ignore_errors=True)
    # Compiled for the Python of the build; pip compiles for its own.
    for cache in list(prefix.rglob("__pycache__")):
        shutil.rmtree(cache)
    for program in ("lockstep", "lockstep-stacks"):
        if (prefix / "bin" / program).exists():
            bundle(prefix / "bin" / program, prefix / "libs")
    for file in prefix.rglob("*"):
        if file.is_file() and is_elf(file) and file.parent.name == "lockstep":
            left = [name for name in needed(file) if name != "liblockstep.so"]
            if left:
                raise SystemExit("error: %s is loaded into applications and needs %s\n  %s\n  try: link it statically"
                                 % (file.name, ", ".join(left), file))


if __name__ == "__main__":
    main(*sys.argv[1:])
