"""What a program writes to a terminal that a test holds."""
import os


def read_until_closed(control):
    """All that is written until the last one with the terminal open closes it; closes `control`.

    An error is believed when it comes again: n_tty_read (Linux 6.18) looks for input first and then whether the other end
    is closed, so that a write and a close between the two read as EIO, with the text still to come.
    """
    said = b""
    errors = 0
    while errors < 2:
        try:
            piece = os.read(control, 65536)
        except OSError:
            errors += 1
            continue
        if not piece:
            break
        said += piece
    os.close(control)
    return said
