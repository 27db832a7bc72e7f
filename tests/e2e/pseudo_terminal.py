"""What a program writes to a terminal that a test holds."""
import os


def read_until_closed(control):
    """All that is written until the last one with the terminal open closes it; closes `control`."""
    said = b""
    while True:
        try:
            piece = os.read(control, 65536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.close(control)
    return said
