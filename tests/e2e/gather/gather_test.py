"""lockstep gather: hosts are directories here, and the remote shell is a script that goes there.

usage: gather_test.py BUILD_DIR Class

Whole     all files, once; what is there already stays; nothing changes at the source
Refusals  other runs, other files of the same name, and what is no recording
Failures  hosts that do not answer, connections that end or lie, full disks
Names     nothing in a name is taken for a command, an option or a line
"""
import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import h5py
    import jobs
except ImportError:
    print("skipped: no h5py")
    sys.exit(77)

SPEC = """
ranks 4
nodes 2
steps 20
network alpha=20us bandwidth=5GB/s
late rank=2 by=12ms
step
  input 1ms
  forward 20ms
  backward 40ms buckets=1MiB,4MiB
  waitall
  optimizer 2ms
end
"""
# As ssh does it: the words are joined and read by a shell, in the host's home directory, after what its start-up files
# print. HOSTS/NAME is the host; hosts without a directory do not answer.
RSH = """#!/bin/sh
[ -d "$HOSTS/$1" ] || { echo "Warning: of another matter" >&2; echo "rsh: connect to host $1: No route to host" >&2; exit 255; }
cd "$HOSTS/$1" || exit 255
echo "$1" >>"$HOSTS/calls"
shift
printf 'Welcome!\\n  no line end'
export HOME="$PWD"
sh -c "$*"
"""


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-gather-"))
        (cls.top / "job.run").write_text(SPEC)
        jobs.run([jobs.BUILD / "make_run", "job.run", "original"], cls.top, check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.top)

    def setUp(self):
        self.place = pathlib.Path(tempfile.mkdtemp(dir=self.top))
        self.hosts = self.place / "hosts"
        self.rsh = self.place / "rsh"
        self.rsh.write_text(RSH)
        self.rsh.chmod(0o755)
        self.part("node1", [0, 1], manifest=True)
        self.part("node2", [2, 3])

    def part(self, host, ranks, manifest=False, name="job", source=None):
        """A host with some ranks' files."""
        run = self.hosts / host / name
        (run / "ranks").mkdir(parents=True)
        for rank in ranks:
            shutil.copy((source or self.top / "original") / f"ranks/rank-{rank:05}.h5", run / "ranks")
        if manifest:
            shutil.copy(self.top / "original/manifest.json", run)
        return run

    def gather(self, *words, code=0, rsh=None, **more):
        done = jobs.run([jobs.LOCKSTEP, "gather", *words, "--rsh", rsh or self.rsh], self.place, env={"HOSTS": str(self.hosts)}, **more)
        done.stdout, done.stderr = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        self.assertIn(done.returncode, code if isinstance(code, tuple) else (code,), done.stdout + done.stderr)
        return done

    def failed(self, done, what, where):
        """The three lines of an error."""
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 3, done.stderr)
        self.assertRegex(lines[0], "^error: .*" + what)
        self.assertRegex(lines[1], "^  .*" + where)
        self.assertRegex(lines[2], "^  try: .")

    def verdict(self, run):
        done = jobs.run([jobs.LOCKSTEP, "analyze", run, "--json", "-"], self.place)
        analysis = json.loads(done.stdout)
        return {name: analysis[name] for name in ("verdict", "ranks", "stragglers", "findings")}

    def state(self, directory):
        """All that could be seen of a change."""
        found = {}
        for path in sorted(directory.rglob("*")):
            info = path.lstat()
            if path.name != "calls":
                found[str(path)] = (info.st_mode, info.st_mtime_ns, info.st_ino, path.read_bytes() if stat.S_ISREG(info.st_mode) else None)
        return found

    def files(self, run="run"):
        return sorted(str(path.relative_to(self.place / run)) for path in (self.place / run).rglob("*") if path.is_file())


ALL = ["manifest.json", *(f"ranks/rank-{rank:05}.h5" for rank in range(4))]


class Whole(Case):
    def test_two_hosts(self):
        before = self.state(self.hosts)
        done = self.gather("node1:job", "node2:job", "-o", "run")
        self.assertRegex(done.stdout, r"(?m)^  node1:job  3 files \(.*\) copied$")
        self.assertRegex(done.stdout, r"(?m)^  node2:job  2 files \(.*\) copied$")
        self.assertRegex(done.stdout, r"(?m)^4 of 4 ranks recorded$")
        self.assertIn("next: lockstep analyze run\n", done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertEqual(self.files(), ALL)
        for name in ALL:
            self.assertEqual((self.place / "run" / name).read_bytes(), (self.top / "original" / name).read_bytes(), name)
        self.assertEqual(self.state(self.hosts), before)
        self.assertEqual(self.verdict("run"), self.verdict(self.top / "original"))
        # Again, and with one file less: what is there is not touched.
        os.remove(self.place / "run/ranks/rank-00003.h5")
        kept = self.state(self.place / "run")
        done = self.gather("node2:job", "node1:job/ranks", "-o", "run/")
        self.assertRegex(done.stdout, r"(?m)^  node2:job  1 file \(.*\) copied, 1 file \(.*\) were here already$")
        now = self.state(self.place / "run")
        self.assertEqual({name: now[name] for name in kept if not name.endswith("/ranks")}, {name: kept[name] for name in kept if not name.endswith("/ranks")})
        self.assertTrue((self.place / "run/ranks/rank-00003.h5").is_file())

    def test_hosts_at_once(self):
        """Each host answers only once the other one has been asked, too."""
        self.rsh.write_text(RSH.replace("shift\n", 'for i in $(seq 300); do [ "$(sort -u "$HOSTS/calls" | wc -l)" = 2 ] && break; sleep 0.1; done\n'
                                        '[ "$i" != 300 ] || exit 8\nshift\n'))
        self.gather("node1:job", "node2:job", "-o", "run")
        self.assertEqual(self.files(), ALL)

    def test_the_next_place_gives_what_the_first_does_not(self):
        self.part("node3", [0, 1], manifest=True)
        # node1 lists all, and sends nothing.
        self.rsh.write_text(RSH.replace('sh -c "$*"', 'case $PWD in */node1) sed "s/^exec tar.*/exit 5/" ;; *) cat ;; esac | sh -c "$*"'))
        done = self.gather("node1:job", "node2:job", "node3:job", "-o", "run", code=3)
        self.assertEqual(self.files(), ALL)
        self.assertIn("    rank-00000.h5  not copied: ", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^  node3:job  3 files \(.*\) copied$")
        self.assertIn("4 of 4 ranks recorded", done.stdout)

    def test_without_a_remote_shell(self):
        """Directories of this machine, of which one is the run itself, and this machine's own name."""
        run = self.hosts / "node1/job"
        name = os.uname().nodename
        done = self.gather(run, f"{name}:{self.hosts / 'node2/job'}", "-o", run, rsh="/nonexistent")
        self.assertRegex(done.stdout, r"0 files \(.*\) copied, 3 files \(.*\) were here already")
        self.assertIn("4 of 4 ranks recorded", done.stdout)
        self.assertFalse((self.hosts / "calls").exists())

    def test_home_and_options_of_the_remote_shell(self):
        self.rsh.write_text(RSH.replace('#!/bin/sh\n', '#!/bin/sh\n[ "$1" = -p ] && [ "$2" = "2 2" ] && shift 2 || exit 9\n'))
        self.gather("node1:~/job", f"node2:{self.hosts / 'node2/job'}", "-o", "run", rsh=f"{self.rsh} -p '2 2'")
        self.assertEqual(self.files(), ALL)

    def test_one_host_is_not_the_whole_run(self):
        done = self.gather("node1:job", "-o", "run", code=3)
        self.assertIn("2 of 4 ranks recorded: nothing is there of ranks 2 and 3\n", done.stdout)
        self.failed(done, "there are no files of ranks 2 and 3", "run")

    def test_spools(self):
        """What an agent left that was killed, here behind the link of --spool-dir; not beside its rank file."""
        words = [jobs.LOCKSTEP, "run", "-o", "left", "--after", "none", "--", "sh", "-c", "kill -9 $PPID; sleep 0.3"]
        jobs.run(words, self.place)
        spools = list((self.place / "left/ranks").glob("*.spool"))
        self.assertEqual(len(spools), 1)
        (self.hosts / "node3/apart").mkdir(parents=True)
        shutil.move(self.place / "left", self.hosts / "node3/left")
        spool = self.hosts / "node3/left/ranks" / spools[0].name
        shutil.move(spool, self.hosts / "node3/apart/elsewhere.spool")
        spool.symlink_to(self.hosts / "node3/apart/elsewhere.spool")
        self.gather("node3:left", "-o", "other")
        copy = self.place / "other/ranks" / spool.name
        self.assertFalse(copy.is_symlink())
        self.assertEqual(copy.read_bytes(), spool.read_bytes())
        jobs.run([jobs.LOCKSTEP, "recover", "other", "--without-memory"], self.place)
        self.assertTrue((self.place / "other/ranks/rank-00000.h5").is_file())
        self.gather("node3:left", "-o", "other")
        self.assertFalse(copy.exists())
        jobs.run([jobs.LOCKSTEP, "recover", self.hosts / "node3/left"], self.place)  # And what it left in memory is gone.


class Refusals(Case):
    def other_run(self, path):
        with h5py.File(path, "r+") as file:
            file["string_bytes/value"][...] = list(bytes(file["string_bytes/value"]).replace(b"make_run", b"run_2222"))

    def test_another_run(self):
        self.other_run(self.hosts / "node2/job/ranks/rank-00003.h5")
        done = self.gather("node1:job", "node2:job", "-o", "run", code=3)
        self.failed(done, "it belongs to run run_2222, and the others to run make_run", "node2:job/rank-00003.h5")
        self.assertEqual(self.files(), ALL[:-1])
        # Neither the manifest nor a file decides alone: what is there does.
        for name in ALL[:-1]:
            os.remove(self.place / "run" / name)
        shutil.copy(self.hosts / "node2/job/ranks/rank-00003.h5", self.place / "run/ranks")
        done = self.gather("node1:job", "node2:job", "-o", "run", code=3)
        self.assertEqual(done.stdout.count("not copied: it belongs to run make_run, and the others to run run_2222"), 4)
        self.assertEqual(self.files(), ["ranks/rank-00003.h5"])

    def test_another_file_of_the_name(self):
        self.gather("node1:job", "-o", "run", code=3)
        mine = self.place / "run/ranks/rank-00001.h5"
        shutil.copy(self.top / "original/ranks/rank-00000.h5", mine)
        before = self.state(mine.parent)
        done = self.gather("node1:job", "-o", "run", code=3)
        self.failed(done, "another file of this name is here; it was left as it is", "node1:job/rank-00001.h5")
        self.assertEqual(self.state(mine.parent), before)
        # Of two sources the first counts.
        self.part("node3", [2])
        shutil.copy(self.top / "original/ranks/rank-00000.h5", self.hosts / "node3/job/ranks/rank-00002.h5")
        done = self.gather("node2:job", "node3:job", "-o", "new", code=3)
        self.failed(done, "another file of this name is here", "node3:job/rank-00002.h5")
        self.assertEqual((self.place / "new/ranks/rank-00002.h5").read_bytes(), (self.top / "original/ranks/rank-00002.h5").read_bytes())

    def test_what_is_no_recording(self):
        ranks = self.hosts / "node2/job/ranks"
        os.remove(ranks / "rank-00002.h5")
        (ranks / "rank-00002.h5").symlink_to("/etc/passwd")
        (ranks / "rank-00005.h5").write_text("no HDF5")
        (ranks / "rank-00006.spool").symlink_to("/etc/passwd")
        (ranks / "rank-00007.h5").mkdir()
        os.mkfifo(ranks / "rank-00008.h5")
        (ranks / "notes.txt").write_text("not asked for")
        with h5py.File(ranks / "rank-00009.h5", "w") as file:
            file["x"] = 1
        done = self.gather("node1:job", "node2:job", "-o", "run", code=3, timeout=60)
        self.assertEqual(self.files(), [name for name in ALL if "00002" not in name])
        for name in ("rank-00005.h5", "rank-00006.spool", "rank-00009.h5"):
            self.assertRegex(done.stdout, rf"(?m)^    {name}  not copied: .")
        self.assertIn("  try: look at it where it is: lockstep recover there", done.stderr)
        self.assertNotIn("of one run only", done.stderr)

    def test_places_that_cannot_be_used(self):
        for words in (["node1:", "-o", "run"], ["", "-o", "run"], ["-o", "run"], ["node1:job"]):
            self.gather(*words, code=2)
        self.assertFalse((self.place / "run").exists())
        done = self.gather("node1:nowhere", "-o", "run", code=1)
        self.failed(done, "nothing could be had .*there is no directory", "node1:nowhere")
        (self.hosts / "node1/empty").mkdir()
        done = self.gather("node1:empty", "-o", "run", code=1)
        self.failed(done, "there is no recording in this directory", "node1:empty")
        self.assertFalse((self.place / "run").exists(), "a directory that nothing came into is not left")
        (self.place / "file").write_text("x")
        self.failed(self.gather("node1:job", "-o", "file", code=1), "cannot be made", "file")
        (self.place / "led/away").mkdir(parents=True)
        (self.place / "led/ranks").symlink_to("away")
        self.failed(self.gather("node1:job", "-o", "led", code=1), "nothing can be added", "led")
        self.assertEqual(list((self.place / "led/away").iterdir()), [])


class Failures(Case):
    def test_a_host_that_does_not_answer(self):
        done = self.gather("node7:job", "node1:job", "node2:job", "-o", "run", code=3)
        self.failed(done, "rsh: connect to host node7: No route to host", "node7:job")
        self.assertEqual(self.files(), ALL)
        done = self.gather("node1:job", "-o", "new", rsh="/nonexistent/rsh", code=1)
        self.failed(done, "/nonexistent/rsh: No such file", "node1:job")

    def changed(self, command):
        """The second call, which sends, goes through a program."""
        self.rsh.write_text(RSH.replace('sh -c "$*"', f'if [ "$(wc -l <"$HOSTS/calls")" -gt 2 ]; then sh -c "$*" | {command}; else sh -c "$*"; fi'))

    def test_damage_on_the_way(self):
        for command in ("head -c 60000", "head -c 30", "true", "tr '\\000' '\\001'", "cat; exit 7"):
            with self.subTest(command=command):
                shutil.rmtree(self.place / "run", ignore_errors=True)
                (self.hosts / "calls").unlink(missing_ok=True)
                self.changed(command)
                done = self.gather("node1:job", "node2:job", "-o", "run", code=0 if command.startswith("cat") else (1, 3))
                for name in self.files() if (self.place / "run").exists() else []:
                    self.assertEqual((self.place / "run" / name).read_bytes(), (self.top / "original" / name).read_bytes())
                self.assertFalse(list(self.place.glob("run/ranks/.gather*")))
                if not command.startswith("cat"):
                    self.assertIn("not copied: ", done.stdout)
                # What was had is kept, and the rest comes once the way is good.
                self.rsh.write_text(RSH)
                self.gather("node1:job", "node2:job", "-o", "run")
                self.assertEqual(self.files(), ALL)

    def test_an_archive_that_lies(self):
        """Members outside of the directory, links, and names that nobody asked for."""
        lies = self.place / "lies.py"
        lies.write_text("""
import io, sys, tarfile
sys.stdin.buffer.read()
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
for name, link in (("/ESCAPED", None), ("../../../ESCAPED", None), ("ranks/extra", None), ("ranks", "/tmp"), ("ranks/rank-00000.h5", "../../../manifest"),
                   ("manifest.json", "/etc/passwd")):
    info = tarfile.TarInfo(name)
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
        out.addfile(info)
    else:
        info.size = 3
        out.addfile(info, io.BytesIO(b"bad"))
out.close()
""")
        # The mark that comes before the archive is passed on.
        self.rsh.write_text(RSH.replace('sh -c "$*"', 'if [ "$(wc -l <"$HOSTS/calls")" -gt 1 ]; then cat >script; grep ^printf script | sh; '
                                        f'{sys.executable} {lies} <script; else sh -c "$*"; fi'))
        done = self.gather("node1:job", "-o", "run", code=1)
        self.assertIn("not copied: ", done.stdout)
        self.assertFalse((self.place / "run").exists())
        self.assertFalse(list(self.top.rglob("ESCAPED")) or os.path.exists("/ESCAPED"))

    def test_a_file_that_changes(self):
        self.rsh.write_text(RSH.replace('export HOME', '[ -f job/ranks/rank-00003.h5 ] && echo more >>job/ranks/rank-00003.h5; export HOME'))
        done = self.gather("node1:job", "node2:job", "-o", "run", code=3)
        self.assertIn("rank-00003.h5  not copied: it changed while it was copied, or was damaged on the way", done.stdout)
        self.assertEqual(self.files(), ALL[:-1])

    def test_a_file_that_cannot_be_read(self):
        hidden = self.hosts / "node2/job/ranks/rank-00002.h5"
        # Root reads all; of a file that is gone when it is read the same is said.
        self.rsh.write_text(RSH.replace('sh -c "$*"', f'sed "s|sha256sum <|case \\$f in *2.h5) false ;; *) true ;; esac \\&\\& sha256sum <|" | sh -c "$*"'))
        done = self.gather("node1:job", "node2:job", "-o", "run", code=3)
        self.assertTrue(hidden.exists())
        self.failed(done, "a file was not copied: it cannot be read there", "node2:job/rank-00002.h5")

    def test_a_full_disk(self):
        """No file may become longer than this: a limit stands for the space that is there."""
        done = self.gather("node1:job", "node2:job", "-o", "run", code=1, preexec_fn=limit_files)
        self.assertIn("rank-00000.h5  not copied: ", done.stdout)
        self.assertEqual([name for name in self.files() if "rank-" in name], [])
        self.gather("node1:job", "node2:job", "-o", "run")
        self.assertEqual(self.files(), ALL)

    def test_what_a_killed_one_left(self):
        left = self.place / "run/ranks/.gather-abcdef/ranks"
        left.mkdir(parents=True)
        (left / "rank-00000.h5").write_text("half")
        self.gather("node1:job", "node2:job", "-o", "run")
        self.assertEqual(self.files(), ALL)
        self.assertFalse(left.exists())


def limit_files():
    import resource
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


class Names(Case):
    ODD = ["a b", "it's \"quoted\"", " -x", "-rf", "-", "~x", "$(touch HURT)", "`touch HURT`;touch HURT", "a\nfile 1 x rank-00009.h5\nb", "*", "\x1b]0;x\x07", "\udcff\udc80", "a\\nb"]

    def test_directories(self):
        for n, name in enumerate(self.ODD):
            with self.subTest(name=name):
                self.part(f"odd{n}", [0, 1, 2, 3], manifest=True, name=name)
                done = self.gather(f"odd{n}:{name}", "-o", f"run{n}")
                self.assertEqual(self.files(f"run{n}"), ALL)
                self.assertNotIn("\x1b", done.stdout + done.stderr)
                # As a directory of this machine, and as the run that is made.
                self.gather(f"./hosts/odd{n}/{name}", "-o", f"./made/{name}")
                self.assertEqual(self.files(f"made/{name}"), ALL)
        self.assertFalse(list(self.top.rglob("HURT")))

    def test_hosts(self):
        for host in ("-oProxyCommand=touch HURT", "-v", "a b", "$(touch HURT)", "a;b", "me@-v", "a\nb", "[x y]", "a\u202eb", "h\udcf6st"):
            with self.subTest(host=host):
                self.gather(f"{host}:job", "-o", "run", code=2)
        self.assertFalse((self.hosts / "calls").exists())
        self.assertFalse(list(self.top.rglob("HURT")))
        for host in ("me@node.example-1.org", "fd00::2%eth0", "me@fd00::2", "h\u00f6st", "\u8282\u70b9"):
            with self.subTest(host=host):
                self.part(host, [0, 1, 2, 3], manifest=True)
                written = host if ":" not in host else "me@[fd00::2]" if "@" in host else f"[{host}]"
                done = self.gather(f"{written}:job", "-o", "of " + host)
                self.assertIn(f"  {written}:job  5 files", done.stdout)

    def test_what_agents_print(self):
        """Rank 1 of two hosts that agents cannot connect: the words for a shell are those that are meant, on one line."""
        told = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
        for name in self.ODD:
            with self.subTest(name=name):
                done = jobs.run([jobs.LOCKSTEP, "run", "-o", f"./{name}", "--after", "none", "--", "true"], self.place, env=told)
                lines = [line for line in done.stderr.splitlines() if b"lockstep gather" in line]
                self.assertEqual(len(lines), 1, done.stderr)
                self.assertNotIn(b"\x1b", done.stderr)
                command = lines[0][lines[0].index(b"lockstep gather"):lines[0].index(b"   then: ")]
                words = jobs.run(["bash", "-c", "printf '%s\\0' " + os.fsdecode(command)], self.place).stdout.split(b"\0")
                self.assertEqual(words[:2] + words[3:], [b"lockstep", b"gather", b"-o", b"RUN", b""])
                self.assertEqual(words[2], os.fsencode(f"{os.uname().nodename}:{self.place}/{name}"))

    def test_files(self):
        ranks = self.hosts / "node1/job/ranks"
        for name in ("rank-0 0.h5", "rank-$(touch HURT).h5", "rank--x.h5", "rank-1.h5\nfile 1 x rank-00009.h5", "rank-.h5", "rank-00001.px.h5", "rank-\x1b.spool"):
            shutil.copy(self.top / "original/ranks/rank-00003.h5", ranks / name)
        done = self.gather("node1:job", "node2:job", "-o", "run")
        self.assertEqual(self.files(), ALL)
        self.assertFalse(list(self.top.rglob("HURT")))
        self.assertNotIn("\x1b", done.stdout + done.stderr)


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    jobs.leave(unittest.TextTestRunner(verbosity=2).run(suite))
