#!/usr/bin/env python3
"""What the fuzzers read, without the search and the sanitizers: every corpus, and damaged copies that are the same each
time. replay.py BUILD_DIR"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Damaged copies of each corpus; of fuzz.py, which reads files, for each of its four readers.
INPUTS = {"fuzz.py": 150, "kineto/fuzz.py": 15_000, "flight_recorder/fuzz.py": 6_000, "ras/fuzz.py": 15_000}

if __name__ == "__main__":
    sys.exit(any([subprocess.run([sys.executable, HERE / script, sys.argv[1], "--replay", str(inputs)]).returncode
                  for script, inputs in INPUTS.items()]))
