#!/usr/bin/env python3
"""Sources of a target may be compiled as one (LOCKSTEP_JOIN_SOURCES). Names in their anonymous namespaces then meet: two
types of one name do not compile, and of two functions another than the one of the file may be called. Files with such
names are compiled apart: cmake/apart.txt lists them.

usage: joined.py SOURCE_DIR          checks the tree
       joined.py SOURCE_DIR --list   prints what the list should hold
       joined.py --self-test         checks that doubles are found
"""

import collections
import functools
import pathlib
import re
import sys

import checking
from one_definition import stripped

TOKEN = re.compile(r"namespace(\s+[\w:]+)?\s*\{|[{};]")
TYPE = re.compile(r"(?:struct|class|enum class|enum|union)\s+(\w+)")
# file(GLOB name ...) and what list(FILTER name EXCLUDE REGEX "...") leaves of it.
GLOB = re.compile(r"^file\(GLOB (\w+) (?:CONFIGURE_DEPENDS )?([^()]*)\)", re.M)
FILTER = r'^list\(FILTER %s EXCLUDE REGEX "(.*)"\)$'
TARGET = re.compile(r"^[^#\n]*?(lockstep_library|lockstep_unit_test|add_executable|target_sources)\(([^()]*)\)", re.M)


def names_of(declaration):
    """What a declaration in an anonymous namespace, or a static one, names: nothing that could be another's too."""
    first = name_of(declaration)
    if first:
        yield first
        if "(" not in declaration.split("=")[0]:  # `constexpr int kA = 1, kB = 2;`
            yield from re.findall(r",\s*(\w+)\s*=", declaration)


def name_of(declaration):
    """The first name of it, or None."""
    text = re.sub(r"\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)", "", " ".join(declaration.split()))
    text = re.sub(r"^(template\s*<[^{;]*?>\s*(requires\s*\(.*?\)\s*)?)+(?=[a-z])", "", text)
    if not text or re.match(r"using (namespace )?[\w:]+$|namespace \w+ =|static_assert|extern|typedef|(TEST|INSTANTIATE)\w*\(", text):
        return None
    found = TYPE.match(text) or re.match(r"using (\w+) =", text)
    if found:
        return found[1]
    text = re.split(r"(?<![=!<>])=(?!=)", text)[0]
    if "(" in text:
        found = re.search(r"(::\s*)?(operator\b.{0,3}|~?\w+)\s*$", text[:text.index("(")])
        return found[2] if found and not found[1] and not found[2].startswith("operator") else None
    found = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", text)
    return found[1] if found and not found[1].isdigit() and " " in text and not text.rsplit(" ", 1)[1].startswith("::") else None


def names(text, hidden=True):
    """(namespace, name) of what only this file can see; `hidden` false: of what all can."""
    text, open_, begin = stripped(text), [], 0
    for token in TOKEN.finditer(text):
        inside = "{" in open_
        if not inside and not token[0].startswith("namespace") and token[0] != "}":
            declaration = text[begin:token.start()]
            if hidden == ("" in open_ or declaration.lstrip().startswith("static ")):
                found = list(names_of(declaration))
                if token[0] == "{" and re.match(r"\s*enum\b(?!\s+class)", declaration):
                    found += re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", text[token.end():text.index("}", token.end())].strip())
                for name in found:
                    yield "::".join(level for level in open_ if level), name
        if token[0].startswith("namespace"):
            open_.append((token[1] or "").strip() if not inside else "{")
        elif token[0] == "{":
            open_.append("{")
        elif token[0] == "}" and open_:
            open_.pop()
        if "{" not in open_:
            begin = token.end()


def targets(root):
    """(name, sources) of the targets whose sources may be joined."""
    for file in sorted(root.rglob("CMakeLists.txt")):
        if file.relative_to(root).parts[0].startswith("build"):
            continue
        of, text = collections.defaultdict(list), file.read_text()
        for name, patterns in GLOB.findall(text):
            globbed = [path for pattern in patterns.split() for path in sorted(file.parent.glob(pattern))]
            for without in re.findall(FILTER % name, text, re.M):
                globbed = [path for path in globbed if not re.search(without.replace("\\\\", "\\"), str(path))]
            text = text.replace("${%s}" % name, " ".join(str(path.relative_to(file.parent)) for path in globbed))
        for call in TARGET.finditer(text):
            words = call[2].split()
            if "ALONE" in words:
                continue
            sources = [pathlib.Path(word.replace("${CMAKE_SOURCE_DIR}", str(root))) for word in words if word.endswith(".cc")]
            sources = [file.parent / source for source in sources if "$" not in str(source)]
            of[words[0]] += [source.resolve() for source in sources if source.is_file()]
        yield from of.items()


def clashes(root):
    """target to {(namespace, name): sources}, and how many sources there are. A name that a header has, too, is one that
    any file may have included."""
    found, files = {}, 0

    @functools.cache
    def included(file):
        return [root / name for name in re.findall(r'^#include "([^"]+\.h)"', file.read_text(), re.M) if (root / name).is_file()]

    @functools.cache
    def public(header):
        return list(names(header.read_text(), hidden=False))

    def headers(sources):
        seen, left = set(), list(sources)
        while left:
            new = [file for file in included(left.pop()) if file not in seen]
            seen.update(new)
            left += new
        return seen

    for target, sources in targets(root):
        holders = collections.defaultdict(set)
        for source in sources:
            files += 1
            for name in names(source.read_text()):
                holders[name].add(source)
        for header in headers(sources):
            for name in public(header):
                if name in holders:
                    holders[name].add(header)
        found[target] = {name: of for name, of in holders.items() if len(of) > 1}
    return found, files


def apart(root):
    """The fewest files, nearly, without which no name is there twice."""
    result = set()
    for doubles in clashes(root)[0].values():
        left = [set(of) for of in doubles.values()]
        result |= {source.name for of in left if any(file.suffix == ".h" for file in of) for source in of if source.suffix == ".cc"}
        left = [{source for source in of if source.suffix == ".cc" and source.name not in result} for of in left]
        while any(len(of) > 1 for of in left):
            worst = collections.Counter(source.name for of in left if len(of) > 1 for source in sorted(of)).most_common(1)[0][0]
            result.add(worst)
            left = [{source for source in of if source.name != worst} for of in left]
    return sorted(result)


def check(root):
    root = root.resolve()
    listed = root / "cmake" / "apart.txt"
    exempt = {line for line in listed.read_text().splitlines() if line and line[0] != "#"} if listed.exists() else set()
    found, files = clashes(root)
    wrong = []
    for target, doubles in found.items():
        for (_, name), of in sorted(doubles.items()):
            together = sorted(source.name for source in of if source.name not in exempt)
            if len(together) > 1:
                wrong.append(f"{target}: {name} is in {' and in '.join(together)}: rename one, or name a file in cmake/apart.txt")
    return wrong, files


CASES = {
    "a/CMakeLists.txt|lockstep_library(a SOURCES ../b.cc ../c.cc)": True,
    "a/CMakeLists.txt|lockstep_library(a ALONE SOURCES ../b.cc ../c.cc)": False,
    "a/CMakeLists.txt|lockstep_library(a SOURCES ../b.cc)\nlockstep_library(e SOURCES ../c.cc)": False,
    "a/CMakeLists.txt|lockstep_library(a SOURCES ../b.cc ../d.cc)": False,
    "a/CMakeLists.txt|file(GLOB sources CONFIGURE_DEPENDS ../*.cc)\nlockstep_library(a SOURCES ${sources})": True,
    "a/CMakeLists.txt|file(GLOB s ../*.cc)\nlist(FILTER s EXCLUDE REGEX \"/c\\\\.cc$\")\nlockstep_library(a SOURCES ${s})": False,
}
SOURCES = {
    "b.cc": "namespace a {\nnamespace {\nusing schema::kNone;\nstruct B {\n  int Sum();\n};\nint Sum(int b) { return b; }\n}\n}\n",
    "c.cc": "namespace a {\nusing schema::kNone;\nstatic double Sum(double b) { return b; }\nint B() { int Sum = 1; return Sum; }\n}\n",
    "d.cc": "namespace a {\nusing schema::kNone;\nnamespace e {\nnamespace {\nint Sum(double b);\n}\n}\nint Sum();\n}\n",
}


def check_with_sources(root):
    for name, text in SOURCES.items():
        (root / name).write_text(text)
    return check(root)[0], 1


if __name__ == "__main__":
    if sys.argv[2:] == ["--list"]:
        print("\n".join(apart(pathlib.Path(sys.argv[1]).resolve())))
    else:
        sys.exit(checking.main(check_with_sources if sys.argv[1] == "--self-test" else check, CASES, sys.argv[1]))
