"""What is to come back from a machine that is given away afterwards: an archive in pieces of limited size, at most so
many, that is whole after every file. `cat NAME.tgz.* | tar xz` unpacks it, also if it was cut off."""

import gzip
import io
import os
import pathlib
import tarfile

# Of what a check leaves: rings and dumps can be large and say nothing, the others can be made again.
LEFT_OUT = ("*.core", "core", "core.*", "csv/*", "timeline.h5", "*.part", "*.ring", "__pycache__/*")


class Archive:
    """Every file is a gzip stream of its own with one member of a tar in it: streams behind each other are one."""

    def __init__(self, directory, name, piece_bytes, pieces):
        self.directory, self.name, self.piece_bytes = pathlib.Path(directory), name, piece_bytes
        self.room = piece_bytes * pieces
        self.written = 0
        self.left_out = []

    def _append(self, data):
        while data:
            piece, used = divmod(self.written, self.piece_bytes)
            part, data = data[:self.piece_bytes - used], data[self.piece_bytes - used:]
            with open(self.directory / f"{self.name}.tgz.{piece:02d}", "ab") as file:
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
            self.written += len(part)

    def add(self, path, name):
        """False if there is no room for it: said, and the next one may be smaller."""
        packed = io.BytesIO()
        try:
            with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as stream:
                # Not closed as a tar: its end would end the archive.
                tarfile.TarFile(fileobj=stream, mode="w").add(path, arcname=name, recursive=False)
        except OSError as error:  # Gone, or unreadable: the others still count.
            self.left_out.append(f"{name}: {error}")
            return False
        data = packed.getvalue()
        # A kilobyte for the end.
        if self.written + len(data) + 1024 > self.room:
            self.left_out.append(f"{name}: {len(data)} bytes packed")
            return False
        self._append(data)
        return True

    def add_tree(self, root, name):
        """Small files first, so that one large one leaves out none of them."""
        root, files = pathlib.Path(root), []
        for path in root.rglob("*"):
            relative = path.relative_to(root)
            if path.is_symlink() or not path.is_file() or any(relative.match(pattern) for pattern in LEFT_OUT):
                continue
            files.append((path.stat().st_size, str(relative), path))
        for _, relative, path in sorted(files):
            self.add(path, f"{name}/{relative}")

    def finish(self):
        if self.written:
            self._append(gzip.compress(b"\0" * 1024, mtime=0))
