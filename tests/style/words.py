#!/usr/bin/env python3
"""Sentences are rows of analysis/words/, and no stage reads text that another has written.

usage: words.py SOURCE_DIR        checks the tree
       words.py --self-test       checks that wrong lines are found
"""

import pathlib
import re
import sys

import checking

# Members that hold sentences. Nothing compares, searches or cuts them.
SENTENCES = r"(?:headline|brief|evidence|action|sentence|remedy|verdict|additivity|remarks?|detail)"
# What is known of a rank and only shown; what it is asleep in is the name of a call.
SHOWN = r"(?:doing|asleep_in|asleep_on|no_stacks|waits_for)"
READS = re.compile(rf"\b(?:{SENTENCES}|{SHOWN})(?:\[[^\]]*\])?\s*(?:\.|->)\s*"
                   r"(?:find|rfind|starts_with|ends_with|substr|contains|compare|pop_back)\s*\(")
EQUALS = re.compile(rf"(?:\.|->){SENTENCES}\s*[!=]=(?!\s*\"\")|[!=]=\s*[\w.()>-]*(?:\.|->){SENTENCES}\b")
ENUM = re.compile(r"[!=]= \(?\w* ?\??[\w: ]*Verdict::")  # verdict is a value of these in diff and tune.
# Where sentences are not made: passes, what chooses and prices findings, and what says who holds a job up.
PASSES = ("analysis/causes/", "analysis/communication/", "analysis/replayed/", "analysis/run/", "analysis/stragglers/",
          "analysis/stacks/", "analysis/diff/", "analysis/choose_findings", "analysis/idle_other", "hang/")
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
SPOKEN = re.compile(r"\b[A-Za-z]{2,} [A-Za-z]{2,}\b")
# Errors (what, where, what to do): that an analysis without a replay names as its reason, and of files and limits.
ERRORS = ("analysis/replayed/replayed_run.cc", "analysis/diff/baseline.cc", "analysis/diff/limits.cc")


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def reads_text(path, text):
    """Lines that read a sentence."""
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        if READS.search(line) or EQUALS.search(line) and not ENUM.search(line):
            yield f"{path}:{number}: reads a sentence: {line.strip()}"


def speaks(path, text):
    """Lines that make one outside of analysis/words/."""
    if not path.startswith(PASSES) or path in ERRORS:
        return
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        if any(SPOKEN.search(each) for each in TEXT.findall(line)):
            yield f"{path}:{number}: a sentence: {line.strip()}"


def rows(root):
    found = {}
    for file in sorted((root / "analysis/words").glob("*.def")):
        for name in re.findall(r"LS_WORD\((k\w+),", file.read_text()):
            found.setdefault(name, []).append(file.name)
    return found


def check(root):
    wrong, used, files = [], set(), 0
    for folder in ("analysis", "hang", "cli"):
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix not in (".cc", ".h") or path.startswith("analysis/report/web/"):
                continue
            files += 1
            text = file.read_text()
            used.update(re.findall(r"Word::(k\w+)", text))
            wrong += [*reads_text(path, text), *speaks(path, text)]
    words = rows(root)
    wrong += [f"{name} is a row of {' and '.join(where)}" for name, where in words.items() if len(where) > 1]
    wrong += [f"analysis/words/{where[0]}: nothing says {name}" for name, where in words.items() if name not in used]
    return wrong, files


CASES = {
    'analysis/x.cc|if (finding.headline.find(": ") == 0) {': True,
    'analysis/x.cc|if (loss.detail.starts_with(kAll)) {': True,
    'analysis/x.cc|if (wait_only->headline != analysis.verdict)': True,
    'analysis/x.cc|finding.headline.pop_back();': True,
    'analysis/x.cc|if (finding.headline.empty()) {': False,
    'analysis/x.cc|finding.headline = HeadlineOf(finding);': False,
    'analysis/x.cc|// finding.headline.find': False,
    'analysis/x.cc|if (loss.detail == "") {': False,
    'analysis/causes/x.cc|brief = "the GPU waits";': True,
    'analysis/causes/x.cc|#include "analysis/causes/x.h"': False,
    'analysis/report/x.cc|brief = "the GPU waits";': False,
    'hang/x.cc|details.push_back("rank 3 is stopped");': True,
    'hang/x.cc|details.push_back(Say(Word::kHangStopped));': False,
    'hang/x.cc|if (words.remedy.starts_with("look")) {': True,
    'hang/x.cc|if (facts.asleep_in.starts_with("poll")) {': True,
    'hang/x.cc|if (facts.asleep_in == "poll") {': False,
}


if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
