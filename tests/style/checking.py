"""What the checks of this folder share: trying themselves out, and what they print.

A check is a function of a source directory; it gives a list of wrong places and how many files it read.
"""
import pathlib
import re
import tempfile

# Folders whose code ends up in the programs of Lockstep and in applications.
PRODUCT = ["core", "trace", "comms", "runtime", "hang", "ingest", "merge", "export", "analysis", "cli"]


def sources(root):
    """(path below root, text) of each source file and header of the product."""
    for folder in PRODUCT:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".h", ".cc"):
                yield file.relative_to(root).as_posix(), file.read_text()


def stripped(text):
    """Without comments and texts."""
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def self_test(check, cases):
    """`cases`: "PATH|TEXT" to whether that file must be found wrong. Those that the check got wrong itself."""
    bad = []
    for case, expect_wrong in cases.items():
        path, text = case.split("|", 1)
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / path
            file.parent.mkdir(parents=True)
            file.write_text(text + "\n")
            wrong, files = check(pathlib.Path(directory))
            if files != 1 or bool(wrong) != expect_wrong:
                bad.append(f"{case!r}: found {wrong}")
    return bad


def main(check, cases, argument):
    if argument == "--self-test":
        wrong, files = self_test(check, cases), 1
    else:
        wrong, files = check(pathlib.Path(argument))
    for line in wrong:
        print(line)
    if files < 1:
        wrong.append("nothing was checked")
        print(f"no source files under {argument}")
    print(f"{len(wrong)} wrong")
    return 1 if wrong else 0
