"""Commands that stand still or are killed at moments all over their work: moments_test.py BUILD_DIR [-v] CASE

LOCKSTEP_TEST_KILLS: how many kills, of each kind.
"""
import os
import random
import shutil
import signal
import sys
import time
import unittest

from neighbours_test import ANALYZE, Case, jobs, start

KILLS = int(os.environ.get("LOCKSTEP_TEST_KILLS", "8"))


class Phases(Case):
    """A writer that stands still, at moments all over its work: who comes meanwhile does not hang and says the same."""

    def test_reader_during_every_phase(self):
        for make in self.kinds():
            begin = time.monotonic()
            self.alone(make, *ANALYZE)
            whole = time.monotonic() - begin
            steps = 10
            for i in range(steps):
                place = make()
                writer = start("analyze", place, "--json", "-")
                time.sleep(whole * (i + 0.5) / steps)
                writer.send_signal(signal.SIGSTOP)
                try:
                    reader = start("analyze", place, "--json", "-", env={"LOCKSTEP_TEST_LOCK_WAIT_MS": "300"})
                    out, err = self.said(reader)
                    with self.subTest(make.__name__, step=i):
                        self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, *ANALYZE), err)
                finally:
                    writer.send_signal(signal.SIGCONT)
                out, err = self.said(writer)
                self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, *ANALYZE), err)
                out, err = self.said(start("analyze", place, "--json", "-"))
                self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, *ANALYZE), err)
                self.clean(place)
                shutil.rmtree(place)


class Kills(Case):
    def test_kills(self):
        chance = random.Random(5)
        for make in self.kinds():
            begin = time.monotonic()
            self.alone(make, *ANALYZE)
            whole = time.monotonic() - begin
            for i in range(KILLS):
                place = make()
                victim = start("analyze", place, "--json", "-")
                time.sleep(chance.uniform(0, whole))
                victim.kill()
                victim.communicate()
                with self.subTest(make.__name__, kill=i):
                    out, err = self.said(start("analyze", place, "--json", "-"))
                    self.assertEqual(out.replace(str(place), "DIR"), self.alone(make, *ANALYZE), err)
                    self.clean(place)
                shutil.rmtree(place)

    def test_killed_import_into_a_run(self):
        chance = random.Random(6)
        source = self.traces()
        words = ("import", "kineto", source, "-o")
        begin = time.monotonic()
        self.said(start(*words, self.dir / "whole"))
        whole = time.monotonic() - begin
        expected = self.said(start("analyze", self.dir / "whole", "--json", "-"))[0]
        for i in range(max(2, KILLS // 2)):
            run = self.dir / f"killed-{i}"
            victim = start(*words, run)
            time.sleep(chance.uniform(0, whole))
            victim.kill()
            victim.communicate()
            with self.subTest(kill=i):
                # A run that is whole, or none: then the same command makes it.
                if not (run / "manifest.json").exists():
                    self.said(start(*words, run))
                out, err = self.said(start("analyze", run, "--json", "-"))
                self.assertEqual(out, expected, err)
                self.clean(run)


if __name__ == "__main__":
    jobs.leave(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result)
