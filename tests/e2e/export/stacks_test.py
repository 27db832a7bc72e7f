"""lockstep export of sampled stacks: what speedscope and flame graphs get is what the ranks' tables hold.

usage: stacks_test.py BUILD_DIR [unittest arguments]
"""

import collections
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import jobs

RUN = """ranks 3
steps 10
seed 2
clocks separate
clock rank=2 offset=5s drift=10ppm
network alpha=20us bandwidth=5GB/s
late rank=2 by=4ms at=collate
stacks rank=2 period=500us compared=1
stacks rank=1 period=1ms
step
  push load;x"y
  compute 3ms name=collate
  pop
  forward 2ms
  barrier
end
"""
NONE = 0xffffffff


class Stacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.place = pathlib.Path(cls.held.name)
        (cls.place / "run.trace").write_text(RUN)
        jobs.run([jobs.BUILD / "make_run", cls.place / "run.trace", cls.place / "run"], cls.place)
        cls.run_dir = cls.place / "run"

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def export(self, *words, code=0):
        done = jobs.run([jobs.LOCKSTEP, "export", self.run_dir, *words], self.place)
        self.assertEqual(done.returncode, code, done.stderr.decode() + done.stdout.decode())
        return done.stdout.decode() + done.stderr.decode()

    def expected(self, rank):
        """Stacks of a rank from its file, outermost first: (function, file) each."""
        file = jobs.RankFile(self.run_dir / f"ranks/rank-{rank:05}.h5")
        names, files = ([file.text(index) or "" for index in file.column("stacks", name)] for name in ("function", "file"))
        parent, found = file.column("stacks", "parent"), []
        for row in file.column("samples", "stack"):
            stack = []
            while row != NONE:
                stack.append((names[row], files[row]))
                row = parent[row]
            found.append(tuple(reversed(stack)) or (("(inside communication)", ""),))
        return found

    def speedscope(self, *words):
        out = self.place / "out.json"
        self.export("--format", "speedscope", "-o", out, *words)
        made = json.loads(out.read_text())
        self.assertEqual(made["$schema"], "https://www.speedscope.app/file-format-schema.json")
        frames = made["shared"]["frames"]
        self.assertEqual(len({(frame["name"], frame.get("file", "")) for frame in frames}), len(frames))
        profiles = {}
        for profile in made["profiles"]:
            self.assertEqual((profile["type"], profile["unit"], profile["startValue"]), ("sampled", "none", 0))
            self.assertEqual(len(profile["samples"]), len(profile["weights"]))
            self.assertEqual(sum(profile["weights"]), profile["endValue"])
            profiles[profile["name"]] = [tuple((frames[f]["name"], frames[f].get("file", "")) for f in stack) for stack in profile["samples"]]
        self.assertLess(made["activeProfileIndex"], len(made["profiles"]))
        self.assertIn("rank 2", made["profiles"][made["activeProfileIndex"]]["name"])
        return made, profiles

    def test_speedscope(self):
        made, profiles = self.speedscope()
        whole = {name: stacks for name, stacks in profiles.items() if "while others waited" not in name}
        self.assertEqual([name.split(" ·")[0] for name in whole], ["rank 1", "rank 2"])
        for name, stacks in whole.items():
            self.assertEqual(stacks, self.expected(int(name.split()[1])))
        late = [stacks for name, stacks in profiles.items() if "while others waited" in name]
        self.assertEqual(len(late), 1)
        self.assertGreater(len(late[0]), 10)
        self.assertLess(len(late[0]), len(self.expected(2)))
        # The others have come when it is still to do what it does last.
        self.assertEqual({stack[-1][0] for stack in late[0]}, {"collate", "forward"})
        self.assertTrue(all(frame.get("line", 1) > 0 for frame in made["shared"]["frames"]))

    def test_collapsed(self):
        out = self.place / "out.collapsed"
        self.export("--format", "collapsed", "-o", out)
        counted = collections.Counter()
        for line in out.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            counted[tuple(stack.split(";"))] += int(count)
        title = lambda frame: (frame[0] + (f" ({frame[1]})" if frame[1] else "")).replace(";", ":")  # noqa: E731
        expected = collections.Counter((f"rank {rank}", *map(title, stack)) for rank in (1, 2) for stack in self.expected(rank))
        self.assertEqual(counted, expected)

    def test_a_part(self):
        made, profiles = self.speedscope("--ranks", "2", "--steps", "3:6")
        self.assertTrue(all(name.startswith("rank 2") for name in profiles))
        some = next(stacks for name, stacks in profiles.items() if "waited" not in name)
        whole = self.expected(2)
        self.assertTrue(any(whole[i:i + len(some)] == some for i in range(len(whole))))
        self.assertLess(abs(len(some) - 3 * len(whole) / 10), 6)

    def test_what_cannot_be(self):
        text = self.export("--format", "speedscope", "--ranks", "0", "-o", self.place / "none.json", code=2)
        self.assertIn("no sample of a stack", text)
        self.assertFalse((self.place / "none.json").exists())
        self.assertIn("--budget", self.export("--format", "collapsed", "--budget", "5MB", code=2))

    def test_where_it_goes_and_what_is_said(self):
        said = self.export("--format", "speedscope")
        self.assertRegex(said, r"run/stacks\.speedscope\.json: .*B of [\d ]+ samples on 3 ranks")
        self.assertTrue((self.run_dir / "stacks.speedscope.json").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
