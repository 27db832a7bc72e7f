"""The types of the module `lockstep`, as a type checker sees them in a user's program: typing_test.py BUILD_DIR

Checked by mypy: of this system, else of PyPI (cmake/mypy.txt, into BUILD_DIR/mypy). Skipped without network.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
USER = pathlib.Path(__file__).resolve().parent / "typed_user.py"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "PYTHON", "MYPY", "LD_", "RANK"))}


def checker():
    """(words that run mypy, variables for it); leaves with 77 where there is none."""
    program = shutil.which("mypy")
    if program:
        return [program], {}
    place = BUILD / "mypy"
    if not (place / "whole").exists():
        shutil.rmtree(place, ignore_errors=True)
        done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--timeout", "15", "--retries", "1",
                               "install", "--quiet", "--target", place, "--only-binary=:all:", "-r", SOURCE / "cmake/mypy.txt"],
                              env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
        if done.returncode:
            print("SKIPPED: no mypy here (Debian: mypy), and none from PyPI: " + done.stdout.strip().splitlines()[-1])
            sys.exit(77)
        (place / "whole").touch()
    return [sys.executable, "-m", "mypy"], {"PYTHONPATH": str(place)}


class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program, cls.variables = checker()
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        # Installed: only py.typed makes a checker believe the annotations there.
        cls.venv = pathlib.Path(cls.temporary.name, "venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", cls.venv], check=True, env=CLEAN)
        site, = cls.venv.glob("lib/python3*/site-packages")
        cls.package = site / "lockstep"
        shutil.copytree(BUILD / "python/lockstep", cls.package, ignore=shutil.ignore_patterns("__pycache__"))

    def check(self, *words):
        return subprocess.run([*map(str, self.program), "--strict", "--cache-dir", self.temporary.name + "/cache",
                               "--no-error-summary", "--show-error-codes", "--python-executable",
                               self.venv / "bin/python", *map(str, words)], cwd=self.temporary.name,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200,
                              env=dict(CLEAN, **self.variables))

    def test_a_program(self):
        """All that is right passes and all that is marked as wrong is found: a marked line without its error is one."""
        done = self.check(USER)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_package_itself(self):
        """What its annotations say of it is true of its code. Of pandas, PyTorch and the like nothing is known here."""
        done = self.check("--ignore-missing-imports", "--allow-subclassing-any", "--no-warn-unused-ignores", self.package)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_everything_public_is_typed(self):
        """No name of __all__ is Any to a user."""
        sys.path.insert(0, str(BUILD / "python"))
        import lockstep

        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write("import lockstep\n" + "".join("reveal_type(lockstep.%s)\n" % name
                                                     for name in [*lockstep.__all__, "range", "Run", "__version__"]))
            file.flush()
            done = self.check(file.name)
        revealed = [line for line in done.stdout.splitlines() if "Revealed type" in line]
        self.assertEqual(len(revealed), len(lockstep.__all__) + 3, done.stdout)
        self.assertEqual([line for line in revealed if 'type is "Any"' in line], [])

    def test_without_the_mark_nothing_is_believed(self):
        """This test can fail: py.typed is what it stands on."""
        mark = self.package / "py.typed"
        mark.rename(self.package / "unmarked")
        self.addCleanup(lambda: (self.package / "unmarked").rename(mark))
        self.assertIn("py.typed marker", self.check(USER).stdout)


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False).result
    sys.exit(not result.wasSuccessful())
