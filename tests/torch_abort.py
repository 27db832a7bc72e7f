"""How PyTorch ends a job over gloo now and then, recorded or not, and what tests do about it.

In PyTorch 2.15 the gloo thread that drops a work takes the interpreter's lock to free the work's ThreadLocalState. If the
interpreter ends meanwhile, the process is terminated with this text and SIGABRT: 2 of 25 bare jobs and 2 of 50 recorded
ones that ended in their last step without destroy_process_group(), on a busy machine (pytorch/pytorch issue 190489, pull
request 179291). DDP's model keeps its group after destroy_process_group(), so that call alone does not prevent it.
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
