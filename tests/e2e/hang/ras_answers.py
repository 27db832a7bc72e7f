"""What NCCL's RAS would have answered of a played job (jobs_that_stop.py): `ncclras` and `ncclras -v` since 2.24, and
`ncclras -f json`. RAS knows how often each rank has called each kind of collective in each communicator, and which
processes answer.

usage: ras_answers.py DIRECTORY      writes both forms of every job of jobs_that_stop.all_jobs()
"""
import collections
import json
import pathlib
import sys

import jobs_that_stop

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
NAMES = {"all_reduce": "AllReduce", "broadcast": "Broadcast", "reduce_scatter": "ReduceScatter", "_reduce_scatter_base": "ReduceScatter",
         "_all_gather_base": "AllGather"}
GPUS_PER_NODE = 8


class Answers:
    """`silent`: ranks whose process does not answer; `dead`: for a minute. `gone`: (group, rank) that is no member any more."""

    def __init__(self, job, silent=(), dead=(), gone=(), states=None, errors=None, world=True, nvml=0):
        self.job, self.silent, self.dead, self.gone = job, set(silent) | set(dead), set(dead), set(gone)
        self.states, self.errors, self.world, self.nvml = states or {}, errors or {}, world, nvml

    def communicators(self):
        """(hash, ranks, {rank: Counter of kinds}), as far as a group has made a call; larger ones first."""
        counts = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
        for rank, made in enumerate(self.job.made):
            for call, *_ in made:
                if call.peer is None:
                    counts[call.group][rank][NAMES[call.kind]] += 1
        groups = [(0x27a079b828ff1a75 + int(name), name, self.job.groups[name][1]) for name in counts]
        groups = [group for group in groups if self.world or len(group[2]) < self.job.size]
        return [(f"{number:016x}", name, ranks, counts[name]) for number, name, ranks in sorted(groups, key=lambda group: -len(group[2]))]

    def place(self, rank):
        """Node, process, GPU of CUDA and of NVML."""
        return f"10.0.0.{1 + rank // GPUS_PER_NODE}", 40000 + 7 * rank, rank % GPUS_PER_NODE, (rank + self.nvml) % GPUS_PER_NODE

    def json(self, told="2026-03-01 10:00:00", commas=True):
        communicators = []
        for number, name, ranks, counts in self.communicators():
            here, missing = [], []
            for place, rank in enumerate(ranks):
                host, pid, cuda, nvml = self.place(rank)
                facts = {"rank": place, "host": host, "pid": pid, "cuda_dev": cuda, "nvml_dev": nvml}
                if rank in self.silent or (name, rank) in self.gone:
                    missing.append({**facts, "status": {"unresponsive": rank in self.silent, "considered_dead": rank in self.dead}})
                    continue
                state = self.states.get((name, rank), "RUNNING")
                here.append({**facts, "status": {"init_state": 7 if state == "INIT" else 0, "async_error": self.errors.get(rank, 0),
                                                 "finalize_called": state == "FINALIZE", "destroy_flag": False,
                                                 "abort_flag": state == "ABORT"},
                             "collective_counts": {kind: counts[rank][kind] for kind in KINDS}})
            communicators.append({"hash": f"0x{int(number, 16):x}", "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e", "size": len(ranks),
                                  "ranks_count": len(here), "missing_ranks_count": len(missing), "ranks": here, "missing_ranks": missing})
        text = json.dumps({"nccl_version": "2.28.9", "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": told,
                           "communicators_count": len(communicators), "communicators": communicators,
                           "ras": {"collection_time_sec": 0.0, "timeouts_count": 0}}, indent=2) + "\n"
        if not commas:  # As 2.28.9 writes those that are missing.
            begin, *rest = text.split('"missing_ranks": [')
            for part in rest:
                begin += '"missing_ranks": [' + part.replace(',\n          "status"', '\n          "status"')
            text = begin
        return text

    # The text ---------------------------------------------------------------------------------------------------------

    def at(self, rank):
        host, pid, cuda, nvml = self.place(rank)
        return f"GPU {cuda}{f' (NVML {nvml})' if nvml != cuda else ''} managed by process {pid} on node {host}"

    @staticmethod
    def listed(count, total, verbose):
        if count == 1:
            return True
        return count < total * 0.5 if verbose else count <= 10 and count <= total * 0.25

    def classes(self, of_rank, ranks, verbose, said, one):
        """Ranks by what is said of them, the most frequent first; few of them one by one."""
        lines = []
        by_value = collections.defaultdict(list)
        for rank in of_rank:
            by_value[of_rank[rank]].append(rank)
        for value, alike in sorted(by_value.items(), key=lambda each: (-len(each[1]), -each[0] if isinstance(each[0], int) else 0)):
            if len(alike) > 1:
                lines.append(f"  {len(alike)} ranks {said(value)}")
            if self.listed(len(alike), len(ranks), verbose):
                for rank in alike:
                    lines.append(f"  Rank {ranks.index(rank)} {one(value) + ' ' if len(alike) == 1 else ''}-- {self.at(rank)}")
        return lines

    def text(self, verbose=False, per_kind=True):
        job = self.job
        nodes = -(-job.size // GPUS_PER_NODE)
        lines = ["NCCL version 2.28.3 compiled with CUDA 13.0", "CUDA runtime version 13000, driver version 13000", "", "Job summary",
                 "===========", "", "  Nodes  Processes         GPUs  Processes     GPUs", "(total)   per node  per process    (total)  (total)",
                 f"{nodes:7d}  {min(job.size, GPUS_PER_NODE):9d}  {1:11d}  {job.size:9d}  {job.size:7d}", "", "Communicators... (0.00s)",
                 "=============", ""]
        rows, errors, warnings = collections.OrderedDict(), [], []
        for number, name, ranks, counts in self.communicators():
            silent = [rank for rank in ranks if rank in self.silent]
            gone = [rank for rank in ranks if (name, rank) in self.gone]
            here = [rank for rank in ranks if rank not in silent and rank not in gone]
            states = {rank: self.states.get((name, rank), "RUNNING") for rank in here} | {rank: "NOCOMM" for rank in gone}
            trouble, warning = [], []
            if silent:
                trouble = ["INCOMPLETE"]
                errors.append((number, "INCOMPLETE", [f"  Missing communicator data from {len(silent)} rank{'s' * (len(silent) > 1)}"]))
                if len(silent) == 1 or verbose or len(silent) <= 10:
                    if per_kind:
                        errors[-1][2].extend(f"  Rank {ranks.index(rank)} -- {self.at(rank)}" for rank in silent)
                    else:
                        errors[-1][2].append(f"  The missing rank{'s' * (len(silent) > 1)}: " + ",".join(str(ranks.index(r)) for r in silent))
            if wrong := {rank: self.errors[rank] for rank in here if rank in self.errors}:
                trouble.append("ERROR")
                word = {1: "Unhandled CUDA error", 2: "System error", 6: "Remote process error"}
                errors.append((number, "ERROR", [f"  Asynchronous error{'s' * (len(wrong) > 1)} on {len(wrong)} rank{'s' * (len(wrong) > 1)}",
                                                 *self.classes(wrong, ranks, verbose, lambda v: f"reported {word[v]}", lambda v: f"reported {word[v]}")]))
            if len(set(states.values())) > 1:
                warning += ["  Communicator ranks have different status",
                            *self.classes(states, ranks, verbose, lambda v: f"have status {v}", lambda v: f"has status {v}")]
            for kind in KINDS if per_kind else ("collective",):
                of_rank = {rank: counts[rank][kind] if per_kind else sum(counts[rank].values()) for rank in here}
                if len(set(of_rank.values())) > 1:
                    said = lambda v: f"launched up to operation {v}" if v else "not launched any operations"  # noqa: E731
                    warning += [f"  Communicator ranks have different {kind} operation counts",
                                *self.classes(of_rank, ranks, verbose, lambda v: "have " + said(v), lambda v: "has " + said(v)), ""]
            if warning:
                trouble.append("MISMATCH")
                warnings.append((number, "MISMATCH", warning))
            rows.setdefault((len(ranks), ",".join(trouble) or "OK"), []).append((number, len(here)))
        names = {}
        if rows:
            lines += ["Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors", "    #  in group  per comm  per node  per comm  in group"]
        else:
            lines += ["No communicator data collected!"]
        for index, ((size, trouble), members) in enumerate(rows.items()):
            names.update({number: f"#{index}-{place}" for place, (number, _) in enumerate(members)})
            lines.append(f"{index:5d}  {len(members):8d}  {nodes:8d}  {'1-8':>8s}  {size:8d}  {sum(n for _, n in members):8d}  {'RUNNING':>8s}  {trouble:>6s}")
        lines += ["", "Errors", "======", ""]
        for word, who in (("INCOMPLETE", self.silent - self.dead), ("DEAD", self.dead)):
            if not who:
                continue
            many = len(who) > 1
            lines += [word, f"  Missing communicator data from {len(who)} job process{'es' * many}" if word == "INCOMPLETE" else
                      f"  {len(who)} job process{'es are' if many else ' is'} considered dead (unreachable via the RAS network)"]
            for rank in sorted(who):
                host, pid, cuda, nvml = self.place(rank)
                lines.append(f"  Process {pid} on node {host} managing GPU {cuda}{f' (NVML {nvml})' if nvml != cuda else ''}")
            lines.append("")
        for number, word, some in errors:
            lines += [f"{names[number]} ({number}) {word}", *some, ""]
        lines += ["Warnings", "========", ""]
        for number, word, some in warnings:
            lines += [f"{names[number]} ({number}) {word}", *some]
        return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for made in jobs_that_stop.all_jobs():
        if made.style.get("backend", "nccl") == "nccl":
            place = pathlib.Path(sys.argv[1]) / made.name
            place.mkdir(parents=True)
            answers = Answers(made.play())
            (place / "ras.json").write_text(answers.json())
            (place / "ras.txt").write_text(answers.text())
