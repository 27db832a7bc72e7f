"""Texts that are expected to the byte: expected/NAME.txt, rewritten with --update on the command line."""
import difflib
import pathlib
import sys

EXPECTED = pathlib.Path(__file__).resolve().parent / "expected"
UPDATE = "--update" in sys.argv
if UPDATE:
    sys.argv.remove("--update")


def check(case, name, text):
    path = EXPECTED / f"{name}.txt"
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    want = path.read_text() if path.exists() else ""
    if text != want:
        diff = difflib.unified_diff(want.splitlines(), text.splitlines(), f"expected/{path.name}", "shown", lineterm="")
        case.fail("\n".join(list(diff)[:60]) + "\n(--update writes it; review the diff)")
