"""Counts the signals that it gets until SIGRTMIN+3 comes: counts_signals.py [apart] [tell] [code N | signal N]

apart: in a session of its own. tell: says each. Prints "ready", and the counts."""
import collections
import os
import signal
import sys

END = signal.SIGRTMIN + 3
COUNTED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT}
# Those that wait are taken in the order of their numbers, and this one has the highest.
signal.pthread_sigmask(signal.SIG_BLOCK, COUNTED | {END})
if "apart" in sys.argv:
    os.setsid()
print("ready", flush=True)
counts = collections.Counter()
while (got := signal.sigwait(COUNTED | {END})) != END:
    counts[signal.Signals(got).name] += 1
    if "tell" in sys.argv:
        print("got", flush=True)
print(*("%s=%d" % item for item in sorted(counts.items())), flush=True)
if "code" in sys.argv:
    sys.exit(int(sys.argv[-1]))
if "signal" in sys.argv:
    os.kill(os.getpid(), int(sys.argv[-1]))
