#!/usr/bin/env python3
"""Who may write to standard output and error. What Lockstep shows may hold names of others, so all of it goes through the
few files that make them harmless (core/printed.h).

usage: output.py SOURCE_DIR        checks the tree
       output.py --self-test       checks that other ways are found
"""

import re
import sys

import checking

# The probe (runtime/probe, comms/pmpi, ...) says nothing at all.
MAY = {
    "cli/output/out.cc": "the way for commands",
    "runtime/agent/rundir/say.cc": "the way for agents",
    "runtime/doctor/software.cc": "self-test's child: the doctor reads its words and cleans them",
    "comms/clock_mpi/lockstep_clock.cc": "rows for its agent on standard output",
}
# In the application's process: nothing may be allocated, so they clean in place. They must call it.
IN_PROCESS = ["runtime/probe/process.cc", "runtime/cupti/inject.cc", "comms/nccl/chain.cc", "comms/pmpi/choose.cc"]
CLEANS = "MakePlainLine("
WAYS = re.compile(r"\b(?:std::)?(?:printf|puts|putchar|vprintf|perror|psignal)\s*\(|\bfmt::print\b|\bstd::(?:cout|cerr|clog)\b|"
                  r"\b(?:stdout|stderr)\b|\bSTD(?:OUT|ERR)_FILENO\b|\bdprintf\s*\(")
# Not written to: asked about, handed on, closed, put elsewhere.
HARMLESS = re.compile(r"isatty\(|ioctl\(|ForFile\(|dup2\(|fflush\(|freopen\(|<= STDERR_FILENO|int out_fd = |out_fd = STDERR_FILENO|"
                      # A sentence of ours without anybody's name in it.
                      r"write\(STDERR_FILENO, k[A-Z]\w*, sizeof k[A-Z]\w* - 1\)|"
                      r"(?:!=|==) STDERR_FILENO|adddup2\(|addopen\(|#define|fcntl\(|Progress>\(!speaks")


def check(root):
    wrong, files = [], 0
    for path, text in checking.sources(root):
        files += 1
        if path in MAY:
            continue
        if path in IN_PROCESS and CLEANS in text:
            continue
        for number, line in enumerate(checking.stripped(text).splitlines(), 1):
            if WAYS.search(line) and not HARMLESS.search(line):
                wrong.append(f"{path}:{number}: {line.strip()}: use cli/output/out.h (commands) or runtime/agent/rundir/say.h (agents)")
    return wrong, files


CASES = {
    'cli/a.cc|std::printf("%s", name);': True,
    'cli/a.cc|std::fprintf(stderr, "x");': True,
    'cli/a.cc|fmt::print("{}", name);': True,
    'cli/a.cc|std::cout << name;': True,
    'cli/a.cc|std::fwrite(a, 1, n, stdout);': True,
    'runtime/agent/a.cc|::write(STDERR_FILENO, a, n);': True,
    'merge/a.cc|perror("x");': True,
    'comms/pmpi/a.cc|write(STDERR_FILENO, kLine, sizeof kLine - 1);': False,
    'comms/pmpi/a.cc|write(STDERR_FILENO, line, sizeof line - 1);': True,
    'cli/a.cc|std::snprintf(text, sizeof text, "%d", n);': False,
    'cli/a.cc|// printf("x")': False,
    'cli/a.cc|Show("stdout {}", name);': False,
    'cli/a.cc|isatty(STDOUT_FILENO) == 1': False,
    'cli/output/out.cc|std::fputs(a, stdout);': False,
    'runtime/probe/process.cc|MakePlainLine(line); write(STDERR_FILENO, line, n);': False,
    'runtime/probe/process.cc|write(STDERR_FILENO, line, n);': True,
}


if __name__ == "__main__":
    sys.exit(checking.main(check, CASES, sys.argv[1]))
