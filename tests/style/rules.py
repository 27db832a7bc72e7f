#!/usr/bin/env python3
"""Numbers that decide an answer are rows of core/rules/, analysis/rules/ and merge/rules/, each with its reason, and each is used.

usage: rules.py SOURCE_DIR        checks the tree
       rules.py --self-test       checks that wrong lines are found
"""

import pathlib
import re
import sys

import checking

FOLDERS = ("core/rules/", "analysis/", "merge/")
# They use rows of core/rules/, too.
USERS = ("ingest/", "trace/")
# Figures and texts are laid out here; formulas of distributions have numbers of their own; a table of kernels' names.
FREE = ("analysis/causes/kernel_patterns.cc", "analysis/report/", "analysis/words/", "analysis/tables/engine/", "analysis/core/format.cc", "analysis/core/student.cc")
NUMBER = r"(?<![\w.])(?:0x[0-9a-f]+|\d[\d']*(?:\.\d+)?(?:e[-+]?\d+)?)(?![\w.])"
CONSTANT = re.compile(r"\bconstexpr\s+(?:static\s+)?(?:double|float|int|unsigned|(?:std::)?u?int\d+_t|(?:std::)?size_t|auto)\s+k\w+\s*=\s*([^;]*);")
COMPARED = re.compile(rf"(?<![<>-])[<>]=?\s*({NUMBER})(?!\s*<<)")
# What formulas and units need.
PLAIN = {"0", "1", "2", "0.0", "0.5", "1.0", "2.0", "100", "1000", "1'000", "1e3", "1e6", "1e9", "1e12", "1e-3", "1e-6", "1e-9"}
VERSIONS = ("merge/fresh.cc",)
# Quantiles, places of bits, and loops over a fixed number of kinds.
FORMULA = re.compile(r"Quantile\(|LengthAt\(|\bat\(0\.|>> |\bfor \(")
ROW = re.compile(r'LS_(RULE|LIMIT|FACT)\((\w+),((?:"(?:[^"\\]|\\.)*"|[^")])*)\)', re.S)
FIELDS = {"RULE": 7, "LIMIT": 5, "FACT": 6}


def fields(row):
    """Of the rest of a row: type, value, unit, why, ..., texts joined."""
    parts, text = [""], False
    for i, char in enumerate(row):
        if char == '"' and row[i - 1] != "\\":
            text = not text
        if char == "," and not text:
            parts.append("")
        else:
            parts[-1] += char
    return [re.sub(r'"\s*"', "", part.strip()) for part in parts]


def numbers(path, text):
    """Lines with a number of their own."""
    stripped = checking.stripped(text)
    for found in CONSTANT.finditer(stripped):
        own = [n for n in re.findall(NUMBER, found[1]) if n not in PLAIN]
        if own and not re.search(r"numeric_limits|_MAX\b|<<|0xff", found[1]) and path not in VERSIONS:
            yield f"{path}:{stripped[:found.start()].count(chr(10)) + 1}: {found[0]}: a row of rules/?"
    for number, line in enumerate(stripped.split("\n"), 1):
        if "constexpr" in line or line.lstrip().startswith("#") or FORMULA.search(line):
            continue
        own = [n for n in re.findall(NUMBER, line) if ("." in n or "e" in n and not n.startswith("0x")) and n not in PLAIN]
        own += [n for n in COMPARED.findall(line) if n not in PLAIN and not n.startswith("0x")]
        if own:
            yield f"{path}:{number}: {line.strip()}: {own[0]} is a row of rules/?"


def check(root):
    wrong, files, rows, used = [], 0, {}, set()
    for folder in USERS:
        for file in (root / folder).rglob("*.cc"):
            used.update(re.findall(r"\brules::(k\w+)", file.read_text()))
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix not in (".h", ".cc"):
                continue
            files += 1
            text = file.read_text()
            used.update(re.findall(r"\brules::(k\w+)", text))
            if not path.startswith(FREE):
                wrong += numbers(path, text)
        for file in sorted((root / folder).glob("*.def" if folder == "core/rules/" else "rules/*.def")):
            files += 1
            text = re.sub(r"(?m)^\s*//.*$", "", file.read_text())
            for kind, name, rest in ROW.findall(text):
                if name in rows:
                    wrong.append(f"{file.name}: {name} is in {rows[name]} too")
                rows[name] = file.name
                parts = fields(rest.rstrip().rstrip(","))
                if len(parts) != FIELDS[kind] - 1:
                    wrong.append(f"{file.name}: {name} has {len(parts) + 1} fields, not {FIELDS[kind]}")
                elif any(part == '""' for part in parts[2:5]):
                    wrong.append(f"{file.name}: {name} gives no unit, reason or source")
            listed = len(re.findall(r"\bLS_(?:RULE|LIMIT|FACT)\(", text))
            if listed != sum(name == file.name for name in rows.values()):
                wrong.append(f"{file.name}: {listed} rows, not all of them understood")
    wrong += [f"{file}: {name} is not used" for name, file in rows.items() if name not in used]
    return wrong, files


CASES = {
    "analysis/causes/a.cc|constexpr double kMuch = 0.3;": True,
    "analysis/causes/a.cc|constexpr std::size_t kMany = 12;": True,
    "analysis/causes/a.cc|constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);": False,
    "analysis/causes/a.cc|if (posted >= 0.9 * all) return;": True,
    "analysis/causes/a.cc|if (list.size() < 3) continue;": True,
    "analysis/causes/a.cc|if (list.size() < 2) continue;  // 0.9 of them": False,
    "analysis/causes/a.cc|const double seconds = 1e-9 * ns;": False,
    "analysis/report/a.cc|const double x = 0.3;": False,
    'analysis/rules/a.def|LS_RULE(kMany, double, 3, "steps", "Fewer are chance.", "chosen", "")': True,  # Not used.
    'merge/rules/a.def|LS_LIMIT(kMany, double, 3, "steps")': True,
}


if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
