#!/usr/bin/env python3
"""Two types of one name in one namespace are one type to the linker: constructors of the one run for the other wherever
the compiler did not write them out, and only some builds crash. So each name is defined once.

usage: one_definition.py SOURCE_DIR        checks the tree
       one_definition.py --self-test       checks that doubles are found
"""

import collections
import re
import sys

import checking

TOKEN = re.compile(r"namespace(\s+[\w:]+)?\s*\{|\b(?:struct|class|enum class|enum|union)\s+(\w+)(\s*::\s*\w+)*(?:\s+final)?(?:\s*:[^{;()]*)?\s*\{|[{}]")


def stripped(text):
    """Without comments, texts, characters and macros."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.S)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    text = re.sub(r"'(?:[^'\\\n]|\\.)'", "' '", text)
    return re.sub(r"(?m)^\s*#(?:[^\n]*\\\n)*[^\n]*$", "", text)


def definitions(text):
    """Qualified names of types that other files can see."""
    open_ = []
    for token in TOKEN.finditer(stripped(text)):
        if token[0] == "}":
            if open_:
                open_.pop()
        elif token[0] == "{":
            open_.append("{")
        elif token[0].startswith("namespace"):
            open_.append((token[1] or "").strip() + "::")
        else:
            if all(level.endswith("::") for level in open_) and "::" not in open_ and not token[3]:
                yield "".join(open_) + token[2]
            open_.append("{")


def check(root):
    found, files = collections.defaultdict(list), 0
    for path, text in checking.sources(root):
        files += 1
        for name in definitions(text):
            found[name].append(path)
    wrong = [f"{name}: defined in {' and in '.join(places)}: rename one" for name, places in sorted(found.items())
             if len(places) > 1]
    return wrong, files


CASES = {
    "cli/a.cc|namespace a {\nstruct B { int c; };\n}\nnamespace a {\nclass B final : public D {\n};\n}": True,
    "cli/a.cc|namespace a::b {\nstruct C {};\n}\nnamespace a {\nnamespace b {\nstruct C {};\n}\n}": True,
    "cli/a.cc|namespace a {\nenum class B : int { kC };\nenum class B : int { kD };\n}": True,
    "cli/a.cc|namespace a {\nstruct B {};\n}\nnamespace c {\nstruct B {};\n}": False,
    "cli/a.cc|namespace a {\nstruct B {};\nnamespace {\nstruct B {};\n}\n}": False,
    "cli/a.cc|namespace a {\nstruct B;\nstruct B {};\nstruct C { struct B {}; };\n}": False,
    "cli/a.cc|namespace a {\nstruct B {};  // struct B {}\n}": False,
    "cli/a.cc|namespace a {\nstruct B { struct D; };\nstruct B::D {};\nvoid E() { struct B {}; }\n}": False,
}


if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
