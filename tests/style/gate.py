#!/usr/bin/env python3
"""The rules of the gate, of every test that ctest knows without the label `soak`: gate.py BUILD | --self-test

Its timeout is 600 s at most, it needs no machine of its own (RUN_SERIAL), and neither the Python file that it runs nor
the sources of its GoogleTest program sleep, read a load average, or measure how long something took. Waiting for a
condition is wait_until in tests/e2e/jobs.py, which this check does not read.
"""

import json
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MOST_SECONDS = 600
PYTHON = re.compile(r"\btime\.sleep\(|\bgetloadavg\(|\bon_this_machine\(|\btime\.(?:monotonic|perf_counter|time)(?:_ns)?\(\)"
                    r"|[.]seconds\b")
CPP = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep|getloadavg)\s*\(|steady_clock::now\(")


def wrong_lines(path, pattern):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if pattern.search(line):
            yield f"{path.relative_to(SOURCE) if path.is_relative_to(SOURCE) else path}:{number}: {line.strip()}"


def wrong(tests, sources_of):
    """The findings about ctest's tests (its JSON), and the sources of its GoogleTest programs."""
    seen = set()
    for test in tests:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        if "soak" in properties.get("LABELS", []):
            continue
        if properties.get("RUN_SERIAL"):
            yield f"{test['name']}: RUN_SERIAL: a test of the gate decides by facts, which no neighbour changes"
        if float(properties.get("TIMEOUT", 0)) > MOST_SECONDS:
            yield f"{test['name']}: its timeout is above {MOST_SECONDS} s"
        for word in test.get("command", []):
            path = pathlib.Path(word)
            files = sources_of(path.name) if "unit" in properties.get("LABELS", []) else [path] if path.suffix == ".py" else []
            for file in files:
                if file not in seen and file.exists():
                    seen.add(file)
                    yield from wrong_lines(file, CPP if file.suffix in (".cc", ".h") else PYTHON)


def unit_sources(build):
    """Program's name -> its sources, out of the compile commands."""
    found = {}
    for row in json.loads((build / "compile_commands.json").read_text()):
        program = re.search(r"CMakeFiles/(unit_\w+)\.dir", row.get("output") or row["command"])
        if program:
            file = pathlib.Path(row["file"])
            files = [file]
            if "Unity" in file.parts:
                files = [pathlib.Path(name) for name in re.findall(r'#include "(/[^"]+)"', file.read_text())]
            found.setdefault(program.group(1), []).extend(files)
    return found


def self_test():
    import tempfile
    with tempfile.TemporaryDirectory() as place:
        sleeps, judges, waits = (pathlib.Path(place) / name for name in ("a.py", "b.cc", "c.py"))
        sleeps.write_text("import time\ntime.sleep(3)\n")
        judges.write_text("EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);\n")
        waits.write_text("jobs.wait_until(arrived)\n")
        tests = [{"name": "sleeps", "command": ["python3", str(sleeps)]},
                 {"name": "soaks", "command": ["python3", str(sleeps)], "properties": [{"name": "LABELS", "value": ["soak"]}]},
                 {"name": "judges", "command": ["/b/unit_b"], "properties": [{"name": "LABELS", "value": ["unit"]}]},
                 {"name": "waits", "command": ["python3", str(waits)], "properties": [
                     {"name": "RUN_SERIAL", "value": True}, {"name": "TIMEOUT", "value": 900.0}]}]
        found = list(wrong(tests, lambda name: [judges]))
        assert len(found) == 4 and "a.py:2" in found[0] and "b.cc:1" in found[1] and "RUN_SERIAL" in found[2], found
        assert list(wrong(tests[1:2], lambda name: [])) == []


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    build = pathlib.Path(sys.argv[1])
    listed = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True, check=True)
    sources = unit_sources(build)
    findings = list(wrong(json.loads(listed.stdout)["tests"], lambda name: sources.get(name, [])))
    print("\n".join(findings))
    sys.exit(bool(findings))
