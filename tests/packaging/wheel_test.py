"""The wheel of this build: what is in it, and what installing it does. wheel_test.py BUILD_DIR

Made by pip with the tools of pyproject.toml from PyPI, of the programs that are built already. Skipped without network.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from installed import tree

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
LIBC = r"(ld-linux.*|lib(c|m|dl|rt|pthread))\.so\.\d+"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "PYTHON", "LD_", "RANK"))}
# Symbols of these must not be visible in what is loaded into applications.
FOREIGN = re.compile(r"H5[A-Z]|fi_|ucp_|ibv_|_ZN?K?S[tabios]|_ZT[VISN]+S[t]|__cxa_|__gxx_|_Unwind_|_Zn[wa]m|_Zd[la]P")


def run(words, **more):
    done = subprocess.run([str(word) for word in words], env=dict(CLEAN, **more.pop("env", {})), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=200, **more)
    assert done.returncode == 0, "%s\n%s" % (words, done.stdout)
    return done.stdout


def needed(path):
    text = run(["readelf", "--dynamic", "--wide", path])
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", text)


def exported(path):
    """Names of the symbols that others can link to."""
    rows = [line.split() for line in run(["readelf", "--dyn-syms", "--wide", path]).splitlines()]
    return [row[7] for row in rows if len(row) > 7 and row[4] in ("GLOBAL", "WEAK") and row[6] != "UND"]


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.dir = pathlib.Path(cls.temporary.name)
        done = subprocess.run([sys.executable, SOURCE / "packaging/wheel", BUILD], env=CLEAN, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=250)
        if done.returncode == 77:
            print("SKIPPED: " + done.stdout.strip().splitlines()[-1])
            sys.exit(77)
        assert done.returncode == 0, done.stdout
        cls.wheel, = (BUILD / "wheel").glob("*.whl")
        with zipfile.ZipFile(cls.wheel) as file:
            file.extractall(cls.dir / "contents")
        cls.package = cls.dir / "contents/lockstep"
        cls.tool = cls.venv("tool")

    @classmethod
    def venv(cls, name):
        run([sys.executable, "-m", "venv", "--without-pip", cls.dir / name])
        return cls.dir / name

    def pip(self, venv, *words):
        return run([sys.executable, "-m", "pip", "--python", venv / "bin/python", "--disable-pip-version-check", *words])

    def elf_files(self):
        return [path for path in sorted(self.package.parent.rglob("*"))
                if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]

    def test_needs(self):
        """What is preloaded needs libc only; the program finds everything else in the wheel, once, and nothing of MPI."""
        names = [path.name for path in self.elf_files()]
        self.assertTrue({"lockstep", "liblockstep.so", "liblockstep-gpu.so", "liblockstep-cudart.so"} <= set(names), names)
        self.assertEqual("liblockstep-mpi.so" in names, (BUILD / "liblockstep-mpi.so").exists())
        self.assertFalse([name for name in names if re.match(r"lockstep-(clock|merge-mpi)|lib(mpi|open-(rte|pal)|fabric|ucp|ibverbs|"
                                                             r"nccl|cu|hdf5_openmpi|curl|python)", name)])
        bundled = {path.name for path in (self.package / "libs").glob("*.so*")}
        stems = [re.sub(r"-[0-9a-f]{8}\.so.*", "", name) for name in bundled]
        self.assertEqual(len(stems), len(set(stems)), "bundled twice")
        self.assertTrue(all(re.search(r"-[0-9a-f]{8}\.so", name) for name in bundled), bundled)
        for path in self.elf_files():
            preloaded = path.name.startswith("liblockstep")
            for name in needed(path):
                inside = name == "liblockstep.so" and path.name != name if preloaded else name in bundled
                self.assertTrue(inside or re.fullmatch(LIBC, name), "%s needs %s" % (path.name, name))
        used = {name for path in self.elf_files() for name in needed(path)}
        self.assertEqual(bundled - used, set(), "bundled for nothing")
        if shutil.which("dpkg-query"):  # Each goes with its licence.
            self.assertEqual(sorted(path.stem for path in (self.package / "libs/licenses").iterdir()), sorted(stems))

    def test_leaks(self):
        """No symbol of a library that is linked in can meet the application's own."""
        for path in self.package.rglob("liblockstep*.so"):
            leaked = [name for name in exported(path) if FOREIGN.match(name)]
            self.assertEqual(leaked, [], path.name)
            if path.name != "liblockstep-gpu.so":  # It stands in front of functions of CUPTI and NCCL: its purpose.
                self.assertEqual([name for name in exported(path) if re.match("p?nccl|cupti", name)], [], path.name)
        self.assertEqual([name for name in exported(self.package / "bin/lockstep") if name.startswith("H5")], [])
        # The C++ runtime is in the wheel once.
        runtimes = [path.name for path in self.elf_files() if path.name.startswith("libstdc++")]
        self.assertEqual(len(runtimes), 1)

    def test_tag(self):
        """The tag promises the newest glibc that any of the files needs, and no other Python than 3."""
        wanted = max(tuple(map(int, version.split("."))) for path in self.elf_files()
                     for version in re.findall(r"Name: GLIBC_(\d+\.\d+)", run(["readelf", "--version-info", path])))
        self.assertRegex(self.wheel.name, r"^lockstep_profiler-[\d.]+-py3-none-manylinux_%d_%d_\w+\.whl$" % wanted)

    def test_install_upgrade_uninstall(self):
        venv = self.tool
        before = tree(venv)
        self.pip(venv, "install", "--quiet", "--no-deps", self.wheel)
        there = tree(venv)
        self.assertIn("bin/lockstep", there)
        self.uses(venv / "bin")
        self.pip(venv, "install", "--quiet", "--no-deps", "--force-reinstall", self.wheel)
        self.assertEqual(tree(venv), there)
        self.pip(venv, "uninstall", "--quiet", "--yes", "lockstep-profiler")
        self.assertEqual(tree(venv), before)

    def uses(self, places):
        """The program on PATH, a recorded job with the module, and its frames."""
        where = self.dir / "use"
        where.mkdir(exist_ok=True)
        python = places / "python"
        version = run([BUILD / "lockstep", "--version"]).strip()
        clean = {"PATH": "%s:/usr/bin:/bin" % places, "LD_LIBRARY_PATH": ""}
        self.assertEqual(run(["lockstep", "--version"], env=clean).strip(), version)
        self.assertEqual(run([python, "-c", "import lockstep; print(lockstep.__version__)"], cwd=where).strip(), version)
        job = SOURCE / "tests/packaging/module_job.py"
        run(["lockstep", "run", "--quiet", "-o", where / "out", "--", "python", job, "steps"], env=clean, cwd=where)
        run([python, "-m", "lockstep", "run", "--quiet", "-o", where / "again", "--", python, job, "steps"], cwd=where)
        for out in ("out", "again"):
            self.assertIn("steps", run(["lockstep", "info", where / out / "ranks/rank-00000.h5"], env=clean))
            self.assertTrue((where / out / "analysis.json").exists())
            shutil.rmtree(where / out)
        # Without the runtime the installed module does nothing, and says nothing.
        self.assertEqual(run([python, job, "decorators"], env=clean, cwd=where), "")

    def test_other_prefixes(self):
        """A prefix of its own without pyvenv.cfg (as conda's), a directory (--target), a path with a blank; moved afterwards."""
        prefix = self.dir / "a prefix"
        run([sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--prefix", prefix,
             "--ignore-installed", self.wheel])
        # Debian's pip puts "local" between.
        package, = [path.parent for path in prefix.rglob("py.typed") if path.parents[1].name.endswith("-packages")]
        program, = [path for path in prefix.rglob("bin/lockstep") if package not in path.parents]
        version = run([BUILD / "lockstep", "--version"])
        self.assertEqual(run([program, "--version"], env={"PYTHONPATH": str(package.parent)}), version)
        moved = self.dir / "moved"
        prefix.rename(moved)
        self.assertEqual(run([moved / program.relative_to(prefix), "--version"],
                             env={"PYTHONPATH": str(moved / package.parent.relative_to(prefix))}), version)
        target = self.dir / "target"
        run([sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--target", target,
             self.wheel])
        self.assertEqual(run([sys.executable, "-m", "lockstep", "--version"], env={"PYTHONPATH": str(target)}), version)


if __name__ == "__main__":
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False).result
    sys.exit(not result.wasSuccessful())
