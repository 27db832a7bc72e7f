#!/usr/bin/env python3
"""The fault matrix again: what Lockstep adds to the wall time of each case.

usage: seconds_test.py BUILD_DIR [GROUP...]
"""
import sys
import time
import unittest

import faults_test
import matrix


class Timed(faults_test.Job):
    def run(self):
        begin = time.monotonic()
        super().run()
        self.seconds = time.monotonic() - begin
        return self


def compare(self, case, bare, traced, kept):
    sys.stderr.write("  %-28s %5.2f s bare, %5.2f s traced\n" % (case.name, bare.seconds, traced.seconds))
    self.assertLess(traced.seconds, bare.seconds + case.extra_seconds)


faults_test.Job, faults_test.Matrix.compare = Timed, compare
faults_test.add_cases(globals(), matrix.groups(faults_test.Case))
unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
