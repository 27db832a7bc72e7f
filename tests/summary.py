#!/usr/bin/env python3
"""Closing lines of a test run: how many passed, every skipped test with its reason, the end of what each failed
test printed, and the names of those that failed.

usage: summary.py JUNIT_XML ...            (as written by ctest --output-junit)
       summary.py --failed JUNIT_XML ...   the names of failed tests, on one line; nothing if there are none
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

# Logs are often kept by their ends only: a few failures are shown, each by its last lines.
SHOWN_FAILURES = 8
SHOWN_LINES = 30
SHOWN_COLUMNS = 240


def lines_of(case):
    text = case.findtext("system-out") or ""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def reason(case):
    """The text a test gave when it skipped itself: GoogleTest's message, else its last line."""
    lines = [line.strip() for line in lines_of(case)]
    for i, line in enumerate(lines):
        if re.search(r": Skipped$", line) and i + 1 < len(lines):
            return lines[i + 1]
    for line in lines:
        if line.lower().startswith("skip"):
            return line
    return lines[-1] if lines else (case.find("skipped").get("message") or "no reason given")


def main(paths, names_only):
    cases = [case for path in paths for case in ElementTree.parse(path).getroot().findall("testcase")]
    skipped = [case for case in cases if case.find("skipped") is not None]
    failed = [case for case in cases if case.find("failure") is not None]
    if names_only:
        if failed:
            print("failed: " + " ".join(case.get("name") for case in failed))
        return
    print(f"\n{len(cases) - len(skipped) - len(failed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    for case in skipped:
        print(f"  skipped  {case.get('name')}: {reason(case)}")
    for number, case in enumerate(failed):
        message = case.find("failure").get("message") or "failed"
        print(f"  failed   {case.get('name')}: {message}, after {float(case.get('time') or 0):.0f} s")
        for line in lines_of(case)[-SHOWN_LINES:] if number < SHOWN_FAILURES else []:
            print(f"    {line[:SHOWN_COLUMNS]}")


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if word != "--failed"], "--failed" in sys.argv[1:])

