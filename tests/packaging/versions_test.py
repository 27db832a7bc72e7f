"""The Python package in every Python from the oldest that pyproject.toml promises: versions_test.py BUILD_DIR

Its sources are parsed by the oldest one's grammar. Interpreters python3.N on PATH, and those that LOCKSTEP_TEST_PYTHONS
names (separated by colons), run the module without Lockstep and under it.
"""

import ast
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
JOB = str(pathlib.Path(__file__).resolve().parent / "module_job.py")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "PYTHON", "LD_", "RANK"))}
OLDEST = tuple(map(int, re.search(r'requires-python = ">=(\d+)\.(\d+)"', (SOURCE / "pyproject.toml").read_text()).groups()))
# Modules that a Python up to 3.14 has no more.
GONE = {"imp", "distutils", "asyncore", "cgi", "pipes", "telnetlib", "crypt"}


def interpreters():
    """Version -> path."""
    found = {}
    places = [path for path in os.environ.get("LOCKSTEP_TEST_PYTHONS", "").split(":") if path]
    for directory in os.get_exec_path():
        places += sorted(glob.glob(glob.escape(directory) + "/python3.[0-9]*"))
    for path in [*places, sys.executable]:
        done = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, env=CLEAN) if shutil.which(path) else None
        if done is not None and re.fullmatch(r"3 \d+\n", done.stdout):
            found.setdefault(tuple(map(int, done.stdout.split())), path)
    return {version: path for version, path in sorted(found.items()) if version >= OLDEST}


class Versions(unittest.TestCase):
    def test_the_oldest_ones_grammar(self):
        files = [*(SOURCE / "runtime/python").rglob("*.py"), SOURCE / "tests/packaging/module_job.py"]
        self.assertGreater(len(files), 10)
        for path in files:
            tree = ast.parse(path.read_text(), str(path), feature_version=OLDEST)
            imported = {name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
            imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            self.assertEqual(imported & GONE, set(), path)
            # New syntax in annotations parses everywhere, and fails where it is run: before 3.10 X | Y of types, before
            # 3.9 list[int].
            for node in ast.walk(tree):
                for note in (getattr(node, "annotation", None), getattr(node, "returns", None)):
                    for part in ast.walk(note) if note is not None else ():
                        self.assertFalse(isinstance(part, ast.BinOp), "%s:%d" % (path, getattr(part, "lineno", 0)))
                        if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
                            self.assertNotIn(part.value.id, ("list", "dict", "set", "tuple", "type"),
                                             "%s:%d" % (path, part.lineno))
        with self.assertRaises(SyntaxError):  # This check can fail.
            ast.parse("match x:\n  case 1: pass\n", feature_version=OLDEST)

    def test_each_interpreter(self):
        """Every Python that is here: the module without Lockstep, every case of the job under it."""
        found = interpreters()
        print("with Python " + ", ".join("%d.%d" % version for version in found))
        for version, python in found.items():
            with self.subTest(version), tempfile.TemporaryDirectory() as where:
                def run(words, **more):
                    done = subprocess.run([str(word) for word in words], env=dict(CLEAN, **more), cwd=where,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    return done
                bare = {"PYTHONPATH": str(BUILD / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
                every = "import lockstep; [getattr(lockstep, name) for name in lockstep.__all__]; print(lockstep.recording())"
                self.assertEqual(run([python, "-W", "error", "-c", every], **bare).stdout, "False\n")
                self.assertEqual(run([python, "-W", "error", JOB, "decorators"], **bare).stderr, "")
                for case, table in (("steps", "steps"), ("decorators", "ranges"), ("windows", "windows")):
                    run([BUILD / "lockstep", "run", "--quiet", "--after", "none", "-o", where + "/" + case, "--", python, JOB,
                         case], PYTHONDONTWRITEBYTECODE="1")
                    shown = run([BUILD / "lockstep", "info", where + "/" + case + "/ranks/rank-00000.h5"]).stdout
                    self.assertRegex(shown, r"\b%s +[1-9]" % table, case)


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False).result
    sys.exit(not result.wasSuccessful())
