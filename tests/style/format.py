#!/usr/bin/env python3
"""clang-format over every source file.

usage: format.py CLANG_FORMAT SOURCE_DIR [--fix]
"""

import pathlib
import subprocess
import sys

FOLDERS = ["core", "comms", "trace", "runtime", "hang", "ingest", "merge", "export", "analysis", "cli", "examples", "tests", "bench"]


def main(clang_format, source, fix):
    files = sorted(str(file) for folder in FOLDERS for file in (pathlib.Path(source) / folder).rglob("*")
                   if file.suffix in (".h", ".cc", ".c"))
    if not files:
        print(f"no source files under {source}")
        return 1
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]
    done = subprocess.run([clang_format, *mode, *files], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "clang-format-violations" in line})
    for file in wrong:
        print(pathlib.Path(file).relative_to(source))
    print(f"{len(wrong)} of {len(files)} files are not formatted" + ("" if fix or not wrong else
          "; cmake --build BUILD --target format"))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], "--fix" in sys.argv))
