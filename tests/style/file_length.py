#!/usr/bin/env python3
"""A file answers one question, and a file that has grown past 500 lines answers two: split it by what its parts answer.

usage: file_length.py SOURCE_DIR        checks the tree
       file_length.py --self-test       checks that long files are found
"""

import sys

import checking

MOST_LINES = 500
# Longer files, each with its reason. So far none.
EXCEPTIONS = {}


def check(root):
    wrong, files = [], 0
    for path, text in checking.sources(root):
        files += 1
        lines = text.count("\n")
        if lines > MOST_LINES and path not in EXCEPTIONS:
            wrong.append(f"{path}: {lines} lines, at most {MOST_LINES}: split it by what its parts answer")
        elif lines <= MOST_LINES and path in EXCEPTIONS:
            wrong.append(f"{path}: {lines} lines: take it out of the exceptions in tests/style/file_length.py")
    return wrong, files


CASES = {
    "cli/a.cc|" + "\n" * MOST_LINES: True,  # The self-test adds one line.
    "cli/a.cc|" + "\n" * (MOST_LINES - 1): False,
    "export/a.h|" + "\n" * MOST_LINES: True,
}

if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
