#!/usr/bin/env python3
"""clang-tidy over the sources that a build compiles.

usage: tidy.py CLANG_TIDY BUILD_DIR SOURCE_DIR FOLDER...

A file is not looked at again while it, our headers and the checks are as they
were when it passed (BUILD_DIR/tidy-passed.json).
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time


def digest(*texts):
    result = hashlib.sha256()
    for text in texts:
        result.update(text)
    return result.hexdigest()


def main(clang_tidy, build, source, folders):
    source, build = pathlib.Path(source).resolve(), pathlib.Path(build)
    commands = json.loads((build / "compile_commands.json").read_text())
    files = sorted({pathlib.Path(c["file"]) for c in commands})
    files = [f for f in files if f.is_relative_to(source) and f.relative_to(source).parts[0] in folders]
    if not files:
        print("no file to look at")
        return 1
    headers = sorted(h for folder in ["core", "comms", "trace", "runtime", "ingest", "merge", "analysis", "cli",
                                  "examples"]
                     for suffix in ("*.h", "*.def") for h in (source / folder).rglob(suffix))
    common = digest((source / ".clang-tidy").read_bytes(), *(h.read_bytes() for h in headers)).encode()
    memory = build / "tidy-passed.json"
    passed = json.loads(memory.read_text()) if memory.exists() else {}

    def look(file):
        key = digest(common, file.read_bytes())
        if passed.get(str(file)) == key:
            return file, key, True, ""
        done = subprocess.run([clang_tidy, "-p", str(build), "--quiet", str(file)], capture_output=True, text=True)
        return file, key, done.returncode == 0, done.stdout

    begin, bad = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, key, good, text in pool.map(look, files):
            if good:
                passed[str(file)] = key
            else:
                bad += 1
                print(text)
    memory.write_text(json.dumps(passed))
    print(f"{len(files)} files, {bad} with findings, {time.monotonic() - begin:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
