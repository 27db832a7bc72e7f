#!/usr/bin/env python3
"""Closing lines of a test run: how many cases passed, every skipped one with its reason, the end of what each failed one
printed, the slowest ones, and the names of those that failed.

usage: summary.py CTEST_XML CASES_DIR TESTS_XML

CTEST_XML is what ctest --output-junit wrote. A test NAME that runs many cases leaves CASES_DIR/NAME.xml, GoogleTest's
or any other JUnit file: its cases stand in place of the test. TESTS_XML gets the result, a testcase per case.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

# Logs are often kept by their ends only: a few failures are shown, each by its last lines.
SHOWN_FAILURES = 8
SHOWN_LINES = 30
SHOWN_COLUMNS = 240
SHOWN_SLOWEST = 5


def text_of(case):
    parts = [case.findtext("system-out") or ""]
    for failure in case.findall("failure"):
        parts.append(failure.text or failure.get("message") or "")
    return [line.rstrip() for line in "\n".join(parts).splitlines() if line.strip()]


def reason(case):
    """The text a test gave when it skipped itself: GoogleTest's message, else its last line."""
    message = case.find("skipped").get("message") or ""
    if message and not message.startswith("SKIP_"):  # ctest's own words name the property, not the reason.
        return message.splitlines()[-1].strip()
    lines = [line.strip() for line in text_of(case)]
    for line in lines:
        if line.lower().startswith("skip"):
            return line
    return lines[-1] if lines else message or "no reason given"


def cases_of(test, folder):
    """The cases that a ctest test ran, or the test itself."""
    path = folder / f"{test.get('name')}.xml"
    failed = test.find("failure") is not None
    if not path.exists():
        return [test]
    try:
        found = list(ElementTree.parse(path).getroot().iter("testcase"))
    except ElementTree.ParseError:  # It was killed while it wrote.
        return [test]
    for case in found:
        if case.get("classname") and not case.get("name").startswith(case.get("classname")):
            case.set("name", f"{case.get('classname')}.{case.get('name')}")
    found = [case for case in found if case.get("status") != "notrun"]
    # What fails outside of every case: at the end of the process, or before the first one.
    if not found or (failed and all(case.find("failure") is None for case in found)):
        found.append(test)
    return found


def main(ctest_xml, folder, out):
    suite = ElementTree.Element("testsuite", name="lockstep")
    for test in ElementTree.parse(ctest_xml).getroot().findall("testcase"):
        suite.extend(cases_of(test, pathlib.Path(folder)))
    cases = suite.findall("testcase")
    skipped = [case for case in cases if case.find("skipped") is not None]
    failed = [case for case in cases if case.find("failure") is not None]
    for name, count in (("tests", len(cases)), ("failures", len(failed)), ("skipped", len(skipped))):
        suite.set(name, str(count))
    ElementTree.ElementTree(suite).write(out, encoding="utf-8", xml_declaration=True)

    seconds = {case.get("name"): float(case.get("time") or 0) for case in cases}
    slowest = sorted(seconds, key=seconds.get)[-SHOWN_SLOWEST:][::-1]
    print("slowest: " + ", ".join(f"{name} {seconds[name]:.0f} s" for name in slowest))
    for case in skipped:
        print(f"  skipped  {case.get('name')}: {reason(case)}")
    for number, case in enumerate(failed):
        print(f"  failed   {case.get('name')}, after {seconds[case.get('name')]:.0f} s")
        for line in text_of(case)[-SHOWN_LINES:] if number < SHOWN_FAILURES else []:
            print(f"    {line[:SHOWN_COLUMNS]}")
    if failed:
        print("failed: " + " ".join(case.get("name") for case in failed))
    print(f"{len(cases) - len(skipped) - len(failed)} passed, {len(failed)} failed, {len(skipped)} skipped")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
