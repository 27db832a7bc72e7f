"""The rows of the fault matrix, by group. Each group is one test of ctest."""

import atexit
import os
import pathlib
import signal
import subprocess
import time
import unittest

import jobs

APP, APP_MPI, FOREIGN = "{tests}/faults_app", "{tests}/faults_app_mpi", "{tests}/libfaults_foreign.so"


# What a trace must say.

def recorded(job, name="work"):
    """Ranges of this name in all files, and what is counted as lost."""
    files = job.trace.files().values()
    lost = {}
    for file in files:
        for loss, count in file.losses.items():
            lost[loss] = lost.get(loss, 0) + count
    return sum(file.ranges.get(name, 0) for file in files), lost


def complete(ranges):
    """Every range is there, nothing is lost."""
    def check(test, job):
        found, lost = recorded(job)
        test.assertEqual(found, ranges, lost)
        for loss in ("RingFull", "NoRing", "SpoolWrite", "UnknownRecord"):
            test.assertNotIn(loss, lost)
    return check


def accounted(ranges, *by):
    """Of those that are lost all are accounted for, under these names at least."""
    def check(test, job):
        found, lost = recorded(job)
        gone = sum(lost.get(loss, 0) for loss in ("RingFull", "NoRing", "SpoolWrite"))
        test.assertEqual(found + gone, ranges, lost)
        for loss in by:
            test.assertIn(loss, lost)
        code, analysis, said = job.trace.analyze()
        test.assertEqual((code, analysis["trust"]["dropped"]), (3 if gone else 0, gone), said)
    return check


def after_recovery(check):
    """The rank file of a job that failed is made by the next command."""
    def look(test, job):
        if job.case.analyze is None:
            job.trace.analyze()
        check(test, job)
    return look


def ended(code="", signal_number="", ranges=10):
    def check(test, job):
        file = next(iter(job.trace.files().values()))
        test.assertEqual((file.meta["exit_code"], file.meta["exit_signal"]), (str(code), str(signal_number)))
        complete(ranges)(test, job)
    return after_recovery(check)


def matched(functions):
    """MPI: everything met its partner, and each rank made these calls."""
    def check(test, job):
        test.assertEqual(job.analysis["trust"]["unmatched_collectives"], 0)
        test.assertEqual(job.analysis["trust"]["clock_violations"], 0)
        test.assertEqual(job.analysis["trust"]["dropped"], 0)
        files = job.trace.files()
        test.assertEqual(len(files), job.case.ranks)
        for name, file in files.items():
            calls = file.calls
            for function, count in functions.items():
                test.assertEqual(calls.get(function, 0), count, "%s in %s: %r" % (function, name, calls))
            outcome = file.column("p2p", "outcome")
            test.assertTrue((outcome == 0).all(), name)
    return check


def losses(*names):
    def check(test, job):
        _, lost = recorded(job)
        for name in names:
            test.assertIn(name, lost)
    return check


def says(*texts):
    """Lockstep's own words on standard error."""
    def check(test, job):
        for text in texts:
            test.assertIn(text.encode(), job.stderr)
    return check


def both(*checks):
    def check(test, job):
        for one in checks:
            one(test, job)
    return check


# How a program is disturbed.

def kill(number):
    """As a user would: the process that was started gets the signal."""
    def disturb(job):
        job.wait_for(b"ready")
        job.process.send_signal(number)
    return disturb


def stop(agent):
    """For a while, before it is ended."""
    def disturb(job):
        job.wait_for(b"ready")
        victim = job.app if not agent or not job.traced else jobs.agent_of(job.process)
        os.kill(victim, signal.SIGSTOP)
        time.sleep(0.4)
        os.kill(victim, signal.SIGCONT)
        job.process.send_signal(signal.SIGTERM)
    return disturb


# Where a program runs.

def small_disk(megabytes):
    def prepare(job):
        place = job.directory / "full"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dm" % megabytes, "none", str(place)], check=True)
    return prepare


def grow_disk(then):
    """Somebody made room since: the next command uses it."""
    def check(test, job):
        subprocess.run(["mount", "-o", "remount,size=64m", str(job.directory / "full")], check=True)
        code, job.analysis, said = job.trace.analyze()
        test.assertEqual(code, 3, said)
        then(test, job)
    return check


def memory_group(job):
    """A memory cgroup, of version 1 or 2, with too little for the program; its name is in {tmp}/group."""
    for mount, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(mount, "lockstep-faults-%d" % os.getpid())
        try:
            if not group.exists():
                group.mkdir()
                atexit.register(group.rmdir)
            with open(group / limit, "r+") as file:  # Not where it would make the file.
                file.write(str(128 << 20))
        except OSError:
            continue
        for swap, most in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", 128 << 20)):
            if (group / swap).exists():
                (group / swap).write_text(str(most))
        return (job.directory / "group").write_text(str(group))
    raise unittest.SkipTest("no memory cgroup can be made")


def two_jobs(job):
    """A second job of the same kind beside it, in the same directory."""
    other = subprocess.run(job.words, cwd=job.directory, env=job.env, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=60)
    assert other.returncode == 0


def python(*words):
    return [jobs.PYTHON, *words]


def any_order(text):
    """mpirun forwards what ranks write as it comes, and parts of lines mix."""
    return sorted(text)


def mounts(text):
    return "unshare -m sh -c '%s && exec \"$@\"' sh \"$@\"" % text


def groups(Case):
    mpi = [
        Case("mpi4py", python("{source}/mpi4py_calls.py"), ranks=3, analyze=0, check=matched({"MPI_Allgather": 2})),
        Case("threads_multiple", [APP_MPI, "threads", "4", "50"], ranks=3, analyze=0,
             check=matched({"MPI_Allreduce": 200, "MPI_Sendrecv": 200})),
        Case("abort", [APP_MPI, "abort"], ranks=3, code=9, analyze=3, compare_stderr=False),
        Case("exception", [APP_MPI, "exception"], ranks=3, code=134, analyze=3, compare_stderr=False),
        Case("exit_without_finalize", [APP_MPI, "exit_without_finalize"], ranks=2, compare_stderr=False,
             stdout=any_order),
        Case("python_exception", python("-c", "from mpi4py import MPI; MPI.COMM_WORLD.barrier(); print('here');"
                                        " assert MPI.COMM_WORLD.rank == 5"), ranks=2, code=1, analyze=3,
             compare_stderr=False, stdout=any_order),
        Case("input_of_rank_0", ["cat"], ranks=2, input=b"one\ntwo\n"),
        Case("foreign_pmpi", python("-c", "from mpi4py import MPI; w = MPI.COMM_WORLD; import numpy as n\n"
                                    "a = n.ones(3)\n"
                                    "for i in range(5):\n"
                                    "  w.Send(a, dest=1) if w.rank == 0 else w.Recv(a, source=0)\n"
                                    "print(a)"), ranks=2, env={"LD_PRELOAD": FOREIGN, "FOREIGN_LOG": "{tmp}/log"},
             files=["log"], analyze=0, stdout=any_order),
    ]
    endings = [
        Case("exit_code", [APP, "exit"], code=3, check=ended(3)),
        Case("underscore_exit", [APP, "_exit"], code=4, check=ended(4)),
        Case("quick_exit", [APP, "quick_exit"], code=6, check=ended(6)),
        Case("exit_from_thread", [APP, "thread_exit"], code=7, check=ended(7, ranges=20)),
        Case("uncaught", [APP, "throw"], code=-signal.SIGABRT, check=ended(0, 6)),
        Case("abort", [APP, "abort"], code=-signal.SIGABRT, analyze=3, check=ended(0, 6)),
        Case("segv", [APP, "segv"], code=-signal.SIGSEGV, check=ended(0, 11)),
        Case("python_uncaught", python("-c", "print('before'); raise ValueError('nobody catches this')"), code=1),
        Case("term", [APP, "wait"], disturb=kill(signal.SIGTERM), code=-signal.SIGTERM, check=ended(0, 15)),
        Case("term_handled", [APP, "handler", "15"], disturb=kill(signal.SIGTERM), code=5, check=ended(5)),
        Case("int", [APP, "wait"], disturb=kill(signal.SIGINT), code=-signal.SIGINT, check=ended(0, 2)),
        Case("int_handled", [APP, "handler", "2"], disturb=kill(signal.SIGINT), code=5, check=ended(5)),
        Case("int_python", python("-c", "import time\nprint('ready', flush=True)\ntry: time.sleep(20)\n"
                                  "except KeyboardInterrupt: print('interrupted')"), disturb=kill(signal.SIGINT), code=0),
        Case("hup", [APP, "wait"], disturb=kill(signal.SIGHUP), code=-signal.SIGHUP),
        Case("usr1_handled", [APP, "handler", "10"], disturb=kill(signal.SIGUSR1), code=5),
        Case("out_of_memory", python("-c", "print('here', flush=True); b'x' * (400 << 20)"), needs_root=True,
             prepare=memory_group, shell="echo $$ > $(cat {tmp}/group)/cgroup.procs; exec \"$@\"", code=-signal.SIGKILL,
             check=both(says("rank 0 was killed by signal 9; the memory cgroup /sys/fs/cgroup/"),
                        lambda test, job: test.assertIn("counted 1 oom kill during the job",
                                                        job.trace.analyze()[1]["run"]["endings"][0]))),
        Case("stopped_app", [APP, "handler", "15"], disturb=stop(False), code=5, check=ended(5)),
        Case("stopped_agent", [APP, "handler", "15"], disturb=stop(True), code=5, check=ended(5)),
        Case("real_time_signal", [APP, "handler", "40"], disturb=kill(40), code=5),
        Case("exec_itself", [APP, "exec", "3"], check=complete(40)),
        # 61 files to write, some 70 ms of a core each.
        Case("exec_itself_often", [APP, "exec", "60"], extra_seconds=15, check=complete(610)),
    ]
    limits = [
        Case("ring_full", [APP, "marks", "3000000"], options=["--ring-size", "64k"],
             check=accounted(3000000, "RingFull")),
        Case("threads_500", [APP, "marks", "20", "500"], check=complete(10000)),
        Case("threads_500_small_rings", [APP, "marks", "20", "500"], options=["--ring-size", "256k"],
             check=complete(10000)),
        Case("max_bytes", [APP, "marks", "1000000"], options=["--max-bytes", "1M"],
             check=losses("BytesLimit")),
        Case("max_bytes_at_once", [APP, "marks", "1000"], options=["--max-bytes", "1"], check=losses("BytesLimit")),
        # Whether 32 threads are faster than the agent is the scheduler's doing.
        Case("heavy_threads", [APP, "marks", "50000", "32"], check=accounted(1600000)),
        Case("disk_full", [APP, "marks", "400000"], prepare=small_disk(2), options=["-o", "{tmp}/full/run"],
             needs_root=True, recorded=False,
             check=both(says("records lost"), lambda test, job: grow_disk(accounted(400000, "SpoolWrite"))(test, job))),
        Case("disk_full_at_start", [APP, "marks", "100"], prepare=lambda job: full_disk(job),
             options=["-o", "{tmp}/full/run"], needs_root=True, recorded=False, check=says("lockstep: ")),
    ]
    ulimits = [
        # The rings are files, too.
        Case("file_size_limit", [APP, "marks", "200000"], shell="ulimit -f 2000; exec \"$@\"", check=accounted(200000)),
        Case("file_size_limit_tiny", [APP, "marks", "1000"], shell="ulimit -f 1; exec \"$@\"", recorded=False),
        Case("file_size_of_its_own", [APP, "file_size"], code=0, check=accounted(2000)),
        Case("open_files", [APP, "marks", "100"], shell="ulimit -n 12; exec \"$@\"", check=complete(100)),
        Case("open_files_few", [APP, "marks", "100"], shell="ulimit -n 6; exec \"$@\"", recorded=False),
        Case("open_files_least", [APP, "marks", "100"], shell="ulimit -n 4; exec \"$@\"", recorded=False),
        Case("descriptors", [APP, "descriptors"], shell="ulimit -n 64; exec \"$@\"", code=0, check=complete(4000)),
        Case("descriptors_of_mpi", python("-c", "from mpi4py import MPI; import os; MPI.COMM_WORLD.barrier();"
                                          " print(sorted(os.listdir('/proc/self/fd'), key=int))"), ranks=2, analyze=0,
             stdout=any_order),
        # What it inherits leaves the agent none.
        Case("descriptors_inherited", [APP, "descriptors"], code=0, recorded=False,
             shell="ulimit -n 64; for i in {3..60}; do eval \"exec $i</dev/null\"; done; exec \"$@\""),
        Case("address_space", [APP, "marks", "100"], shell="ulimit -v 400000; exec \"$@\"", recorded=False),
        Case("address_space_small", [APP, "marks", "100"], shell="ulimit -v 50000; exec \"$@\"", recorded=False),
        Case("locked_memory", [APP, "marks", "100"], shell="ulimit -l 0; exec \"$@\"", check=complete(100)),
        Case("core_size", [APP, "segv"], shell="ulimit -c 0; exec \"$@\"", code=-signal.SIGSEGV),
        Case("cpu_time", [APP, "marks", "100"], shell="ulimit -t 5; exec \"$@\"", check=complete(100)),
        Case("processes", [APP, "marks", "100"], needs_root=True, recorded=False,
             shell="chmod 777 .; exec setpriv --reuid 54321 --clear-groups sh -c 'ulimit -u 1; exec \"$@\"' sh \"$@\""),
    ]
    places = [
        Case("unwritable", [APP, "marks", "100"], options=["-o", "/proc/nowhere"], recorded=False,
             check=says("/proc/nowhere cannot be written")),
        Case("shm_64m", [APP, "marks", "100"], shell=mounts("mount -t tmpfs -o size=64m none /dev/shm"), needs_root=True,
             check=complete(100)),
        # Four ranks and their MPI share what a container has by default.
        Case("shm_64m_of_four", python("-c", "from mpi4py import MPI; MPI.COMM_WORLD.barrier(); print('good')"), ranks=4,
             shell=mounts("mount -t tmpfs -o size=64m none /dev/shm"), needs_root=True, stdout=any_order, analyze=0,
             check=lambda test, job: test.assertNotIn(b"rings are on a disk", job.stderr)),
        Case("shm_tiny", [APP, "marks", "100"], shell=mounts("mount -t tmpfs -o size=64k none /dev/shm"),
             needs_root=True, check=complete(100)),
        Case("shm_read_only", [APP, "marks", "100"], shell=mounts("mount -t tmpfs -o ro,size=64m none /dev/shm"),
             needs_root=True, check=complete(100)),
        Case("shm_and_disk_small", [APP, "marks", "100"], prepare=small_disk(8), needs_root=True, recorded=False,
             shell=mounts("mount -t tmpfs -o size=64k none /dev/shm"), options=["-o", "{tmp}/full/run"],
             check=says("runs without Lockstep")),
        Case("spaces", [APP, "marks", "100"], options=["-o", "{tmp}/a b/c d"], recorded=False,
             check=lambda test, job: test.assertTrue((job.directory / "a b/c d/ranks/rank-00000.h5").exists())),
        Case("unicode", [APP, "marks", "100"], options=["-o", "{tmp}/schritt-größe-歩調"], recorded=False,
             check=lambda test, job: test.assertEqual(
                 jobs.Run(job.directory / "schritt-größe-歩調").analyze()[0], 0)),
        Case("long_path", [APP, "marks", "100"], options=["-o", "{tmp}/" + "/".join(["d" * 200] * 15)], recorded=False,
             check=lambda test, job: test.assertTrue(
                 job.directory.joinpath(*["d" * 200] * 15, "ranks/rank-00000.h5").exists())),
        Case("too_long_path", [APP, "marks", "100"], options=["-o", "{tmp}/" + "/".join(["d" * 200] * 25)],
             recorded=False, check=says("cannot be written")),
        Case("relative", [APP, "marks", "100"], options=["-o", "here/there"], recorded=False,
             check=lambda test, job: test.assertTrue((job.directory / "here/there/ranks/rank-00000.h5").exists())),
        Case("two_jobs", [APP, "slow", "0.5"], disturb=two_jobs, compare_stderr=False,
             check=lambda test, job: test.assertEqual(
                 len([path for path in job.output.glob("2*/ranks/rank-00000.h5")]), 2)),
        Case("deleted_directory", [APP, "mirror"], recorded=False,
             shell="mkdir gone; cd gone; rmdir ../gone; exec \"$@\""),
        Case("deleted_directory_absolute", [APP, "marks", "100"], options=["-o", "{tmp}/run"],
             shell="mkdir gone; cd gone; rmdir ../gone; exec \"$@\"", check=complete(100)),
        Case("umask", [APP, "mirror"], shell="umask 077; exec \"$@\""),
        Case("home_read_only", [APP, "marks", "100"], env={"HOME": "/proc"}, check=complete(100)),
        Case("no_proc", [APP, "marks", "100"], shell=mounts("mount -t tmpfs none /proc"), needs_root=True,
             recorded=False, check=says("runs without Lockstep")),
        Case("no_home", [APP, "marks", "100"], shell="exec env -u HOME -u TMPDIR \"$@\"", check=complete(100)),
    ]
    streams = [
        Case("mirror", [APP, "mirror", "a b", ""]),
        Case("no_stdin", [APP, "mirror"], shell="exec \"$@\" <&-"),
        Case("no_stdout", [APP, "mirror"], shell="exec \"$@\" >&-"),
        Case("no_stderr", [APP, "mirror"], shell="exec \"$@\" 2>&-"),
        Case("no_streams", [APP, "marks", "100"], shell="exec \"$@\" <&- >&- 2>&-", check=complete(100)),
        Case("extra_descriptors", [APP, "mirror"], shell="exec \"$@\" 7</dev/null 9>/dev/null"),
        Case("pipe_closed", [APP, "lines", "100000"], shell="set -o pipefail; \"$@\" | head -1; exit ${PIPESTATUS[0]}"),
        Case("pipe_ignored", [APP, "lines", "100000"], shell="trap '' PIPE; \"$@\" | head -1; exit ${PIPESTATUS[0]}"),
        Case("input", ["cat"], input=b"some\nlines\n" * 1000),
        Case("ignored_signals", [APP, "mirror"], shell="trap '' INT TERM HUP CHLD; exec \"$@\""),
        Case("nohup", [APP, "mirror"], shell="exec nohup \"$@\""),
        Case("nice", [APP, "mirror"], shell="exec nice -n 5 \"$@\""),
        Case("one_core", [APP, "mirror"], shell="exec taskset -c 0 \"$@\""),
    ]
    sanitized = {name + "_sanitizer": "{tests}/faults_app_" + name for name in ("address", "thread")
                 if (jobs.BUILD / "tests" / ("faults_app_" + name)).exists()}
    environment = [
        *(Case(name, [program, "marks", "100", "4"], check=complete(400)) for name, program in sanitized.items()),
        *(Case(name + "_in_a_script", ["bash", "-c", program + " marks 10; exit 4"], code=4,
               check=after_recovery(complete(10))) for name, program in sanitized.items()),
        Case("preloaded_twice", [APP, "marks", "100"], check=complete(100),
             shell_with_it="LD_PRELOAD=%s/liblockstep.so:%s/liblockstep.so exec \"$@\"" % (jobs.BUILD, jobs.BUILD)),
        Case("foreign_preload", [APP, "mirror"], env={"LD_PRELOAD": FOREIGN}),
        Case("preload_missing", [APP, "marks", "100"], env={"LD_PRELOAD": "/nowhere/lib.so"}, compare_stderr=False,
             check=complete(100)),
        Case("nested", [APP, "marks", "100"], shell_with_it="exec \"$1\" run --after none -o run -- \"$@\""),
        Case("huge_environment", [APP, "mirror"], env={"HUGE_%d" % i: "x" * 100000 for i in range(10)}),
        Case("many_arguments", [APP, "mirror", *["argument %d" % i for i in range(5000)]]),
        Case("long_argument", [APP, "mirror", "y" * 100000]),
        Case("no_environment", [APP, "mirror"], shell="exec env -i \"$@\""),
        Case("hdf5_in_the_program", python("{source}/h5_app.py", "{tmp}/own.h5"), files=["own.h5"], analyze=3),
        Case("python_isolated", python("-I", "-c", "import sys; print(sys.flags.isolated, sys.path)"), code=0),
        Case("python_no_site", python("-S", "-c", "import sys; print(sorted(sys.modules))"), code=0),
        Case("python_path", python("-c", "import sys; print(sys.path[0], sys.argv, 'numpy' in sys.modules)"), code=0,
             env={"PYTHONPATH": "/somewhere:/else"}),
        Case("clock_agent_alone", [APP, "marks", "100"], options=["--clock", "agent"], check=complete(100)),
        Case("clock_tcp_no_network", [APP, "marks", "100"], options=["--clock", "tcp"], check=complete(100),
             shell="exec unshare -n \"$@\"", needs_root=True),
        Case("mpi_no_network", python("-c", "from mpi4py import MPI; MPI.COMM_WORLD.barrier(); print('good')"), ranks=2,
             shell="exec unshare -n sh -c 'ip link set lo up && exec \"$@\"' sh \"$@\"", needs_root=True,
             compare_stderr=False, stdout=any_order, analyze=0),
        Case("script", ["bash", "-c", APP + " marks 10; " + APP + " marks 20; exit 4"], code=4,
             check=after_recovery(complete(30))),
    ]
    return {"Mpi": mpi, "Endings": endings, "Limits": limits, "Ulimits": ulimits, "Places": places, "Streams": streams,
            "Environment": environment}


def full_disk(job):
    small_disk(1)(job)
    with open(job.directory / "full/ballast", "wb") as file:
        try:
            file.write(b"\0" * (1 << 20))
        except OSError:
            pass
