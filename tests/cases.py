"""Many cases in one process, each a testcase of its own in the results.

The ctest entry NAME gives `--entry NAME`; its cases are then in BUILD/tests/cases/NAME.xml, and tests/summary.py puts
them in the entry's place. Without the file (a crash, a timeout) the entry stands for itself.
"""
import os
import time
import traceback
import xml.etree.ElementTree as ElementTree


def run(build, entry, cases):
    """Runs pairs (name, function); a function gives lines that say what is wrong, none if nothing is. -> exit code"""
    path = entry and os.path.join(build, "tests", "cases", entry + ".xml")
    if path and os.path.exists(path):
        os.remove(path)
    suite, failed = ElementTree.Element("testsuite", name=entry or "cases"), 0
    for name, function in cases:
        began = time.monotonic()
        try:
            wrong = list(function())
        except BaseException as error:  # SystemExit, too: the other cases are still to be seen.
            if isinstance(error, KeyboardInterrupt):
                raise
            wrong = traceback.format_exc().splitlines()
        seconds = time.monotonic() - began
        case = ElementTree.SubElement(suite, "testcase", classname=name.split(".")[0], name=name, time=f"{seconds:.3f}")
        if wrong:
            ElementTree.SubElement(case, "failure", message=wrong[-1][:200]).text = "\n".join(wrong)
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok'}  {name}  {seconds:.2f} s", *wrong, sep="\n    ", flush=True)
    count = len(suite)
    suite.set("tests", str(count))
    suite.set("failures", str(failed))
    if path:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        ElementTree.ElementTree(suite).write(path + ".part")
        os.replace(path + ".part", path)
    print(f"{count - failed} of {count} passed")
    return 1 if failed or not count else 0
