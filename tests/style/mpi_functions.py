#!/usr/bin/env python3
"""docs/mpi-functions.md says what happens to every MPI function: what the wrappers record is written from
core/mpi_ops.def and comms/pmpi/names.h, what is passed on is named in the document. Every function of the given mpi.h is
in exactly one of the two.

  mpi_functions.py SOURCE_DIR [--write] [HEADER ...]
"""
import fnmatch
import pathlib
import re
import sys

BEGIN, END = "<!-- what is recorded: begin -->\n", "<!-- what is recorded: end -->"
# Class of core/mpi_ops.h -> what a document says of it.
CLASSES = {
    "kCollective": "blocking collectives: matched across ranks; wait and transfer apart",
    "kCollectivePost": "non-blocking collectives: matched across ranks, from the post to the call that completes them",
    "kCollectiveInit": "persistent collectives (also `MPIX_`): each start is matched",
    "kSend": "sends: matched with their receives, late receivers found",
    "kSendPost": "non-blocking sends: the same",
    "kSendInit": "persistent and partitioned sends: each start is a message; a partitioned one is there with its last part",
    "kRecv": "receives: matched, late senders found",
    "kRecvPost": "non-blocking receives: the same",
    "kRecvInit": "persistent and partitioned receives: each start is a message",
    "kSendRecvPost": "a send and a receive of one request: two messages, matched",
    "kSendRecv": "a send and a receive in one call: two messages, matched",
    "kProbe": "waiting for a message: timed; a matched probe numbers its message",
    "kPoll": "queries: counted, those that find nothing without a row for each; they bound when an operation ended",
    "kStart": "starts of persistent operations",
    "kReady": "parts of a partitioned send: the last one is when the message was there",
    "kWait": "completion: ends the operations of its requests",
    "kTest": "completion by asking: the same, and what it did not find bounds the end from below",
    "kRequest": "requests freed, cancelled and asked about",
    "kComm": "communicators: timed and counted (`mpi_other`); what they make gets an identity that all members agree on",
    "kLifecycle": "begin and end: timed and counted (`mpi_setup`)",
    "kOther": "other calls that may wait: timed and counted (`mpi_other`)",
    "kIo": "MPI-IO: timed and counted (`mpi_io`)",
    "kIoPost": "non-blocking MPI-IO: the same, with the call that completes it",
    "kRma": "one-sided communication and its synchronisation: timed and counted (`mpi_rma`); transfers are not matched. `Win_fence` is a collective of its window: who comes last is known, and how long the others wait",
    "kRmaPost": "one-sided communication with a request: the same, with the call that completes it",
}


def recorded(source):
    """Class -> names; and the names of entry points."""
    classes = {}
    for name, cls in re.findall(r"LS_MPI_OP\(\d+, (\w+), (\w+),", (source / "core/mpi_ops.def").read_text()):
        if name != "Other":
            classes.setdefault(cls, []).append(name)
    text = (source / "comms/pmpi/names.h").read_text()
    lists = {name: re.findall(r"X\((\w+)\)", body)
             for name, body in re.findall(r"#define LS_PMPI_(\w+)\(X\)((?:.*\\\n)*.*\n)", text)}
    entries = {name for kind, names in lists.items() if kind != "CALLED" for name in names} | {"Pcontrol"}
    return classes, entries


def table(classes, entries):
    lines = ["| functions `MPI_...` | what is recorded |", "|---|---|"]
    for cls, what in CLASSES.items():
        names = [n + ("(_c)" if n + "_c" in entries else "") for n in classes.get(cls, [])]
        lines.append(f"| {', '.join(names)} | {what} |")
    return "\n".join(lines) + "\n"


def passed_on(text):
    """The patterns of the document's second table."""
    rows = text[text.index(END):]
    return [word for row in re.findall(r"^\| (.*?) \|", rows, re.M) for word in re.findall(r"`MPI_([\w*]+)`", row)]


def functions(header):
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(header).read_text(errors="replace"), flags=re.S)
    return set(re.findall(r"\b(?:int|double|MPI_Aint) +MPI_([A-Z]\w*) *\(", text))


def main():
    source, write = pathlib.Path(sys.argv[1]), "--write" in sys.argv
    headers = [a for a in sys.argv[2:] if not a.startswith("--") and pathlib.Path(a).exists()]
    page = source / "docs/mpi-functions.md"
    text, (classes, entries) = page.read_text(), recorded(source)
    wrong = [f"core/mpi_ops.h: class {c} has no words in {sys.argv[0]}" for c in classes if c not in CLASSES]
    made = text[:text.index(BEGIN) + len(BEGIN)] + table(classes, entries) + text[text.index(END):]
    if write:
        page.write_text(made)
    elif made != text:
        wrong.append(f"{page}: not what core/mpi_ops.def says (try: {sys.argv[0]} {source} --write)")
    ops = {name for names in classes.values() for name in names}
    wrong += [f"{n}: has an entry point and no number in core/mpi_ops.def" for n in sorted(entries)
              if n.removesuffix("_c") not in ops | {"Initialized", "Finalized", "Pcontrol"}]
    wrong += [f"{n}: has a number in core/mpi_ops.def and no entry point" for n in sorted(ops - entries)]
    patterns = passed_on(text)
    counted = 0
    for header in headers:
        for name in sorted(functions(header)):
            counted += 1
            passed = [p for p in patterns if fnmatch.fnmatchcase(name, p)]
            if name not in entries and not passed:
                wrong.append(f"{header}: MPI_{name} is neither recorded nor named in {page}")
            if name in entries and name in passed:
                wrong.append(f"{page}: MPI_{name} is recorded and named as passed on")
    if headers and counted < 400:
        wrong.append(f"{headers}: only {counted} functions found")
    print("\n".join(wrong) or f"ok: {counted} functions of {len(headers)} headers")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
