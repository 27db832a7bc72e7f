#!/usr/bin/env python3
"""Closing lines of a test run: how many passed, and every skipped test with its reason.

usage: skipped.py JUNIT_XML   (as written by ctest --output-junit)
"""

import re
import sys
import xml.etree.ElementTree as ElementTree


def reason(case):
    """The text a test gave when it skipped itself: GoogleTest's message, else its last line."""
    text = case.findtext("system-out") or ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if re.search(r": Skipped$", line) and i + 1 < len(lines):
            return lines[i + 1]
    for line in lines:
        if line.lower().startswith("skip"):
            return line
    return lines[-1] if lines else (case.find("skipped").get("message") or "no reason given")


def main(path):
    cases = ElementTree.parse(path).getroot().findall("testcase")
    skipped = [case for case in cases if case.find("skipped") is not None]
    failed = [case for case in cases if case.find("failure") is not None]
    print(f"\n{len(cases) - len(skipped) - len(failed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    for case in failed:
        print(f"  failed   {case.get('name')}")
    for case in skipped:
        print(f"  skipped  {case.get('name')}: {reason(case)}")


if __name__ == "__main__":
    main(sys.argv[1])
