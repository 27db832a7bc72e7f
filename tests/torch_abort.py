"""How PyTorch ends a job over gloo now and then, recorded or not, and what tests do about it.

In PyTorch 2.15 the gloo thread that drops a work takes the interpreter's lock to free the work's ThreadLocalState. If the
interpreter ends meanwhile, the process is terminated with this text and SIGABRT: 4 of 16 bare jobs and 4 of 16 recorded
ones of examples/torch/ddp_train.py over gloo, on an idle machine with 2 cores (pytorch/pytorch issue 190489, pull request
179291). DDP's model keeps its group after destroy_process_group(), so that call alone does not prevent it. A short sleep
before it does (0 of 14), so the jobs here sleep; what is left is tried once more.
"""
import sys

TEXT = "terminate called without an active exception"


def once_more_if_aborted(start, clear):
    """What start() gives, a subprocess.CompletedProcess with texts. A job that PyTorch ended in this way is started once
    more after clear(), which removes what it left."""
    done = start()
    if done.returncode == 0 or TEXT not in (done.stderr or "") + (done.stdout or ""):
        return done
    print("PyTorch ended the job with SIGABRT: run again", file=sys.stderr)
    clear()
    return start()
