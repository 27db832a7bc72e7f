#!/usr/bin/env python3
"""Makes the corpus, from jobs that stop, then runs fuzz_flight_recorder on it.

usage: fuzz.py BUILD_DIR [--seconds 20] [--jobs 1] [--seed 1] [--keep DIR]
"""
import argparse
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/hang"))
import jobs_that_stop  # noqa: E402


def make_corpus(directory):
    """Dumps of small jobs, in every form, of two and three ranks at once."""
    directory.mkdir(parents=True, exist_ok=True)
    now = time.time_ns()
    for number, job in enumerate(jobs_that_stop.all_jobs()):
        if job.size > 8:
            continue
        job.style["ring"] = min(job.style.get("ring", 6), 6)
        job.play()
        parts = []
        for rank in range(min(job.size, 3)):
            dump = job.dump_of(rank, now)
            for entry in dump["entries"]:
                entry["frames"] = entry["frames"][-1:]
            protocol = 1 + (number + rank) % 5
            parts.append(json.dumps(dump).encode() if protocol == 1 else pickle.dumps(dump, protocol=protocol))
        data = bytes([len(parts) - 1])
        for part in parts[:-1]:
            data += len(part).to_bytes(2, "little") + part
        (directory / job.name).write_bytes(data + parts[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="work here and keep what is there: the corpus grows")
    options = parser.parse_args()
    program = options.build.resolve() / "tests/fuzz_flight_recorder"
    if not program.exists():
        print("skipped: fuzz_flight_recorder is not built (it needs clang++ with libFuzzer)")
        return 77
    where = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="lockstep-fuzz-"))
    seeds, grown = where / "seeds", where / "corpus"
    grown.mkdir(parents=True, exist_ok=True)
    make_corpus(seeds)
    words = where / "words"
    words.write_text("".join(f'"{word}"\n' for word in (
        "pg_config", "pg_status", "entries", "ranks", "desc", "profiling_name", "nccl:all_reduce", "nccl:send 0->1", "nccl:recv 1<-0",
        "nccl:coalesced", "gloo:broadcast", "collective_seq_id", "p2p_seq_id", "record_id", "state", "completed", "started", "is_p2p",
        "retired", "input_sizes", "time_created_ns", "last_enqueued_collective", "last_completed_collective", "[0, 1, 2]",
        "\\x80\\x02", "\\x80\\x04\\x95", "\\x94", "\\x8c\\x01")))
    environment = dict(os.environ, UBSAN_OPTIONS="print_stacktrace=1", ASAN_OPTIONS="allocator_may_return_null=1")
    running = [subprocess.Popen([program, grown, seeds, f"-max_total_time={options.seconds}", f"-seed={options.seed + job}", "-max_len=32768",
                                 "-timeout=30", "-rss_limit_mb=4096", "-print_final_stats=1", f"-dict={words}",
                                 f"-artifact_prefix={where}/finding-"],
                                stderr=subprocess.PIPE, text=True, errors="replace", env=environment) for job in range(options.jobs)]
    failed = False
    for process in running:
        lines = process.communicate()[1].splitlines()
        failed |= process.returncode != 0
        wanted = lines[-60:] if process.returncode else [line for line in lines if "number_of_executed" in line or " DONE " in line]
        print("\n".join(wanted))
    if failed:
        print(f"FINDING: the input is in {where}")
    elif not options.keep:
        shutil.rmtree(where)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
