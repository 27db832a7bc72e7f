#!/usr/bin/env python3
"""Makes the corpus, then runs fuzz_kineto on it.

usage: fuzz.py BUILD_DIR [--seconds 20] [--jobs 1] [--seed 1] [--keep DIR]
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import campaign  # noqa: E402
import corpus  # noqa: E402

if __name__ == "__main__":
    sys.exit(campaign.run("fuzz_kineto", corpus.main, 16384))
