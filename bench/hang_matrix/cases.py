"""What goes wrong, in which job, and what is true of it: known from what is done to the job, whatever anybody says of it."""
import collections

Case = collections.namedtuple("Case", "kind launch ranks words fault rank causes culprits signal", defaults=(None,))

# Who made a call less or more than the others, or two in another order, may be in the same place: the next call, which
# would tell, is not made. So either name is right where the calls differ in kind.
DIFFER = ("other_operation", "extra_or_missing_call")


def neighbours(first, second):
    """Of a message that only one side made: whether the other one forgot it is not in what they did."""
    return sorted((first, second))


def mpi(kind, ranks, job, fault, rank, causes, culprits=None, signal=None, launch="mpirun"):
    return Case(kind, launch, ranks, ["MPI_JOBS", job], fault, rank, causes, [rank] if culprits is None else culprits, signal)


def python(kind, launch, ranks, fault, rank, causes, culprits=None, signal=None):
    return Case(kind, launch, ranks, [], fault, rank, causes, [rank] if culprits is None else culprits, signal)


def all_cases():
    late, circle = ("did_not_enter",), ("circular_wait",)
    return [
        mpi("skipped", 4, "stencil", "stencil_skips", 1, DIFFER),
        mpi("skipped", 8, "train", "skips_loss", 5, DIFFER),
        mpi("skipped", 4, "train", "skips_loss", 0, DIFFER),
        python("skipped", "mpi4py", 4, "skips", 2, DIFFER),
        python("skipped", "torch2", 4, "skips", 2, DIFFER),
        python("skipped", "torch1", 4, "skips", 0, DIFFER),
        mpi("extra", 4, "train", "extra_barrier", 2, DIFFER),
        mpi("extra", 8, "train", "extra_gather", 7, DIFFER),
        python("extra", "mpi4py", 6, "extra", 0, DIFFER),
        python("extra", "torch2", 4, "extra_barrier", 1, DIFFER),
        mpi("wrong size", 4, "train", "larger_broadcast", 1, ("mismatch",)),
        mpi("wrong size", 6, "train", "larger_sum", 1, ("mismatch",)),
        mpi("wrong size", 4, "train", "larger_shards", 1, ("mismatch",)),
        mpi("wrong size", 6, "train", "larger_broadcast", 3, ("mismatch",)),
        mpi("wrong order", 4, "train", "loss_after_barrier", 3, DIFFER),
        mpi("wrong order", 5, "train", "two_communicators", 1, ("other_operation", "circular_wait")),
        python("wrong order", "mpi4py", 8, "swaps", 2, DIFFER),
        python("wrong order", "torch2", 4, "order", 3, DIFFER),
        python("wrong order", "torch1", 4, "two_groups", 2, ("other_operation", "circular_wait")),
        mpi("wrong root", 4, "stencil", "gathers_at_itself", 2, ("mismatch",)),
        mpi("wrong root", 8, "train", "other_root", 5, ("mismatch",)),
        mpi("wrong root", 8, "train", "other_reduce_root", 2, ("mismatch",)),
        python("wrong root", "mpi4py", 4, "root", 3, ("mismatch",)),
        python("wrong root", "torch2", 4, "root", 1, ("mismatch",)),
        mpi("early exit", 4, "stencil", "stencil_leaves", 1, ("early_exit",)),
        mpi("early exit", 8, "train", "train_leaves", 6, ("early_exit",)),
        python("early exit", "mpi4py", 4, "leaves", 0, ("early_exit",)),
        mpi("SIGSTOP", 4, "stencil", "none", 2, ("stopped",), signal="STOP"),
        mpi("SIGSTOP", 8, "train", "none", 0, ("stopped",), signal="STOP"),
        python("SIGSTOP", "torch2", 4, "none", 3, ("stopped",), signal="STOP"),
        python("SIGSTOP", "torch1", 4, "none", 1, ("stopped",), signal="STOP"),
        mpi("kill -9", 4, "train", "none", 3, ("killed",), signal="KILL", launch="kept"),
        mpi("kill -9", 6, "stencil", "none", 1, ("killed",), signal="KILL", launch="kept"),
        mpi("kill -9 of program and agent", 4, "stencil", "none", 2, ("killed",), signal="KILL BOTH", launch="kept"),
        mpi("lock", 4, "train", "mutex", 1, late),
        mpi("lock", 8, "stencil", "two_mutexes", 4, late),
        python("lock", "mpi4py", 4, "lock", 3, late),
        python("lock", "torch2", 4, "queue", 1, late),
        python("lock", "torch1", 4, "lock", 2, late),
        python("GIL", "mpi4py", 4, "gil_sleep", 2, late),
        python("GIL", "torch2", 4, "gil_sleep", 0, late),
        python("GIL", "torch1", 4, "gil_compute", 3, late),
        mpi("loop", 4, "stencil", "loop", 0, late),
        mpi("loop", 8, "train", "loop", 3, late),
        python("loop", "torch2", 4, "loop", 2, late),
        mpi("file", 4, "train", "pipe_read", 2, late),
        mpi("file", 6, "stencil", "pipe_write", 5, late),
        python("file", "mpi4py", 4, "fifo", 1, late),
        python("file", "torch2", 4, "fifo", 3, late),
        python("caught exception", "torch2", 4, "caught", 1, late),
        mpi("network cut", 4, "train", "none", 2, ("all_inside",), [], signal="CUT", launch="hosts"),
        mpi("network cut", 8, "stencil", "none", 5, ("all_inside",), [], signal="CUT", launch="hosts"),
        python("network cut", "torch_hosts", 4, "none", 1, ("all_inside",), [], signal="CUT"),
        mpi("circle of communicators", 4, "pairs", "pairs_in_a_circle", 0, circle, [0, 1, 2, 3]),
        python("circle of communicators", "torch2", 4, "pairs", 0, circle, [0, 1, 2, 3]),
        mpi("send without receive", 4, "stencil", "sends_for_nobody", 1, circle, neighbours(1, 2)),
        mpi("send without receive", 5, "stencil", "waits_for_a_message", 3, circle, neighbours(3, 4)),
        python("send without receive", "torch2", 4, "send", 0, circle, neighbours(0, 1)),
        mpi("circular messages", 4, "stencil", "sends_in_a_circle", 0, circle, [0, 1, 2, 3]),
        mpi("circular messages", 8, "stencil", "receives_in_a_circle", 0, circle, list(range(8))),
        mpi("circular messages", 6, "stencil", "two_send_to_each_other", 2, circle, [2, 3]),
        python("circular messages", "mpi4py", 4, "circle", 0, circle, [0, 1, 2, 3]),
        python("circular messages", "torch2", 4, "circle", 0, circle, [0, 1, 2, 3]),
    ]
