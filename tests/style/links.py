#!/usr/bin/env python3
"""Links and paths in the documents: every relative link leads to a file, every anchor to a heading, and every path of
the tree that stands in a code span exists.

usage: links.py SOURCE_DIR        checks the tree
       links.py --self-test       checks that broken links are found
"""

import pathlib
import re
import sys

import checking

# What a checkout may hold beside its sources.
SKIPPED = re.compile(r"^(\.git|build.*|node_modules|lockstep\.out|shared)$")
FOLDERS = ["analysis", "bench", "cli", "cmake", "comms", "core", "docs", "examples", "merge", "runtime", "tests", "trace"]
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`+([^`\n]+)`+")
# [text](target) and ![text](target), the target without a title; and what HTML tags name.
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]*)>?[^)]*\)|<[a-z][^>]*\s(?:src|srcset|href)=\"([^\"]*)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
OUTSIDE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
PATH = re.compile(r"(?:%s)/[\w./-]*[\w/]" % "|".join(FOLDERS))
# A word in capitals stands for a name that the reader chooses.
PLACEHOLDER = re.compile(r"\b(NAME|DIR|FILE|RUN|BUILD)\b|\.\.\.")


def without_code(text, spans=True):
    """Fenced blocks, and code spans, as blanks of the same lines."""
    text = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    return CODE.sub(lambda m: " " * len(m[0]), text) if spans else text


def anchors(text):
    """The names under which GitHub makes headings reachable."""
    found, count = set(), {}
    for heading in HEADING.findall(without_code(text, spans=False)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(name if name not in count else f"{name}-{count[name]}")
        count[name] = count.get(name, 0) + 1
    return found


def documents(root):
    for file in sorted(root.rglob("*.md")):
        if not any(SKIPPED.match(part) for part in file.relative_to(root).parts[:-1]):
            yield file


def check(root):
    """Every broken link or path as 'file:line: text'; and the number of documents."""
    wrong, files = [], 0
    for file in documents(root):
        files += 1
        text = file.read_text(encoding="utf-8")
        name = file.relative_to(root).as_posix()
        plain = without_code(text)
        for link in LINK.finditer(plain):
            target, number = link[1] or link[2] or "", plain.count("\n", 0, link.start()) + 1
            if OUTSIDE.match(target):
                continue
            path, _, anchor = target.partition("#")
            to = file if not path else root / path[1:] if path.startswith("/") else file.parent / path
            if not to.exists():
                wrong.append(f"{name}:{number}: {target}: there is no such file")
            elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text(encoding="utf-8")):
                wrong.append(f"{name}:{number}: {target}: there is no such heading")
        for number, line in enumerate(without_code(text, spans=False).splitlines(), 1):
            for span in CODE.findall(line):
                path = PATH.match(span)
                if path and not PLACEHOLDER.search(span) and not re.search(r"[*{<$]", span):
                    if not (root / path[0]).exists():
                        wrong.append(f"{name}:{number}: `{path[0]}`: there is no such file")
    return wrong, files


CASES = {
    'docs/a.md|[a](b.md)': True,
    'docs/a.md|[a](a.md)': False,
    'docs/a.md|![picture](a.png)': True,
    'docs/a.md|[`code` and more](../docs/a.md "title")': False,
    'docs/a.md|[a](#here)': True,
    'docs/a.md|# Here, `and` there\n[a](#here-and-there)': False,
    'docs/a.md|# A\n# A\n[second](#a-1) [third](a.md#a-2)': True,
    'docs/a.md|[a link\nover lines](b.md)': True,
    'docs/a.md|<picture>\n<source media="(dark)" srcset="b.png">': True,
    'docs/a.md|<img alt="a" src="a.md">': False,
    'docs/a.md|[a](https://example.org/b.md)': False,
    'docs/a.md|`[a](b.md)`': False,
    'docs/a.md|```\n[a](b.md) and # Here\n```\n[a](#here)': True,
    'docs/a.md|```\n[a](b.md)\n```': False,
    'docs/a.md|see `core/record.h: Kind`': True,
    'docs/a.md|see `docs/a.md`': False,
    'docs/a.md|see `analysis/NAME.cc` and `tests/*.py`': False,
}


if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
