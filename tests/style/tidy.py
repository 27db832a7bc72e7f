#!/usr/bin/env python3
"""clang-tidy over the sources that a build compiles, together where the build joins them (LOCKSTEP_JOIN_SOURCES).

usage: tidy.py JOBS CLANG_TIDY BUILD_DIR SOURCE_DIR FOLDER...   (JOBS 0: one per core)

What passed is not looked at again while the sources, those of our headers that they include, the checks and the
compiler's arguments are as they were (BUILD_DIR/tidy-passed.json).
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def main(jobs, clang_tidy, build, source, folders):
    source, build = pathlib.Path(source).resolve(), pathlib.Path(build)

    @functools.cache
    def content(file):
        return file.read_bytes()

    @functools.cache
    def included(file):
        """Our files that FILE names: below the source directory, or beside it."""
        places = [(source / name, file.parent / name) for name in INCLUDE.findall(content(file).decode())]
        return [next(place for place in pair if place.is_file()) for pair in places if any(p.is_file() for p in pair)]

    def all_of(file):
        """FILE and what it includes, however far away."""
        found, left = set(), [file]
        while left:
            next_ = left.pop()
            if next_ not in found:
                found.add(next_)
                left += included(next_)
        return sorted(found)

    def is_ours(file):
        return file.is_relative_to(source) and file.relative_to(source).parts[0] in folders

    # What the compiler is given, and the sources in it: itself, or what it joins.
    units = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(command["file"])
        sources = included(file) if file.name.startswith("unity_") else [file]
        instrumented = "-fsanitize=" in command["command"]  # The same sources once more, for fuzzing.
        if sources and not instrumented and all(is_ours(each) for each in sources):
            units[file] = (sources, command["command"])
    if not units:
        print("no file to look at")
        return 1
    memory = build / "tidy-passed.json"
    passed = json.loads(memory.read_text()) if memory.exists() else {}

    def look(file):
        sources, command = units[file]
        key = hashlib.sha256(content(source / ".clang-tidy") + command.encode())
        for each in all_of(file):
            key.update(content(each))
        key = key.hexdigest()
        if passed.get(str(file)) == key:
            return file, key, True, ""
        words = [clang_tidy, "-p", str(build), "--quiet", "--config-file", str(source / ".clang-tidy")]
        if sources != [file]:
            # Findings in the joined files count, that they are joined does not.
            words += ["--header-filter", "/(" + "|".join(folders) + r")/[^.]*\.(h|cc)$", "--checks=-bugprone-suspicious-include"]
        done = subprocess.run([*words, str(file)], capture_output=True, text=True)
        return file, key, done.returncode == 0, done.stdout

    begin, bad = time.monotonic(), 0
    # The long ones first: the last of them runs alone otherwise.
    order = sorted(units, key=lambda file: (-len(units[file][0]), str(file)))
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        for file, key, good, text in pool.map(look, order):
            if good:
                passed[str(file)] = key
            else:
                bad += 1
                print(text)
    memory.write_text(json.dumps(passed))
    print(f"{sum(len(sources) for sources, _ in units.values())} files, {bad} with findings, {time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]))
