"""What an installation leaves."""
import pathlib


def tree(directory):
    """All that an installation may leave; Python compiles what it imports."""
    return {str(path.relative_to(directory)) for path in pathlib.Path(directory).rglob("*")
            if "__pycache__" not in path.parts}
