#!/usr/bin/env python3
"""One name, one type. Two classes of one name in one namespace link without a word, and the linker keeps the members of
only one of them (a wrong destructor was kept so): the compiler sees one file at a time and cannot tell.

usage: one_definition.py SOURCE_DIR        checks the tree
       one_definition.py --self-test       checks that a second definition is found
"""

import collections
import pathlib
import re
import sys

import checking

# What ends up in one program or library. Tests are programs of their own and may use a name again.
FOLDERS = ["core", "trace", "comms", "runtime", "ingest", "merge", "export", "analysis", "cli"]
TOKEN = re.compile(
    r"""(?P<skip>//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')"""
    r"|(?P<namespace>(?:\binline\s+)?\bnamespace\s*(?P<space>[\w:]*)\s*\{)"
    r"|(?P<type>\b(?:struct|class|union|enum\s+class|enum\s+struct|enum)\s+(?:__attribute__\(\([^)]*\)\)\s*|alignas\([^)]*\)\s*)?"
    r"(?P<name>\w+(?:::\w+)*)(?P<special>\s*<[^{};()]*>)?(?:\s+final)?(?:\s*:[^{};()]*)?\s*\{)"
    r"|(?P<open>\{)|(?P<close>\})",
    re.DOTALL)


def types_of(text):
    """Names with namespaces of the types that `text` defines outside of functions, classes and unnamed namespaces."""
    found, spaces, depth = [], [], 0
    for token in TOKEN.finditer(text):
        if token["skip"]:
            continue
        if token["namespace"]:
            spaces.append((depth, token["space"] or ""))
            depth += 1
        elif token["type"]:
            names = [name for _, name in spaces]
            if depth == len(spaces) and "" not in names:
                found.append("::".join([*names, token["name"]]) + re.sub(r"\s", "", token["special"] or ""))
            depth += 1
        elif token["open"]:
            depth += 1
        else:
            depth -= 1
            if spaces and spaces[-1][0] == depth:
                spaces.pop()
    return found


def check(root):
    where, files = collections.defaultdict(list), 0
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cc"):
                continue
            files += 1
            for name in types_of(file.read_text()):
                where[name].append(file.relative_to(root).as_posix())
    return [f"{name} is defined in {' and '.join(places)}: give one another name or its room a namespace"
            for name, places in sorted(where.items()) if len(places) > 1], files


CASES = {
    "cli/a.cc|namespace a { struct S {}; struct S {}; }": True,
    "cli/a.cc|namespace a { struct S {}; } namespace b { class S {}; }": False,
    "cli/a.cc|namespace a { struct S {}; } namespace a { class S : T { int x; }; }": True,
    "cli/a.cc|namespace a::b { enum class S : int { k }; } namespace a { namespace b { struct S final {}; } }": True,
    "cli/a.cc|namespace a { namespace { struct S {}; } } namespace a { struct S {}; }": False,
    "cli/a.cc|namespace a { struct S; struct S {}; void F(const struct S& s) { struct S {}; } }": False,
    "cli/a.cc|namespace a { struct S { struct T {}; }; struct T {}; }": False,
    "cli/a.cc|namespace a { template <> struct S<int> {}; template <> struct S<char> {}; }": False,
    'cli/a.cc|namespace a { struct S {}; auto x = "struct S {"; // struct S {': False,
}


if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
