#!/usr/bin/env python3
"""Makes the corpus, from jobs that stop, then runs fuzz_flight_recorder on it.

usage: fuzz.py BUILD_DIR [--seconds 20] [--jobs 1] [--seed 1] [--keep DIR]
"""
import json
import pathlib
import pickle
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e/hang"))
import jobs_that_stop  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import campaign  # noqa: E402

WORDS = (
    "pg_config", "pg_status", "entries", "ranks", "desc", "profiling_name", "nccl:all_reduce", "nccl:send 0->1", "nccl:recv 1<-0",
    "nccl:coalesced", "gloo:broadcast", "collective_seq_id", "p2p_seq_id", "record_id", "state", "completed", "started", "is_p2p",
    "retired", "input_sizes", "time_created_ns", "last_enqueued_collective", "last_completed_collective", "[0, 1, 2]",
    "\\x80\\x02", "\\x80\\x04\\x95", "\\x94", "\\x8c\\x01",
)


def make_corpus(directory):
    """Dumps of small jobs, in every form, of two and three ranks at once."""
    directory.mkdir(parents=True, exist_ok=True)
    now = 1_700_000_000_000_000_000
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


if __name__ == "__main__":
    sys.exit(campaign.run("fuzz_flight_recorder", make_corpus, 32768, WORDS))
