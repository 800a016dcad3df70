"""Reads a file to its end the way its first argument says and writes what it got to stdout.

Modes: read, readlines, unbuffered, pathlib, copyfileobj.
"""

import pathlib
import shutil
import sys

mode, path = sys.argv[1:]
out = sys.stdout.buffer
if mode == "read":
    with open(path, "rb") as f:
        out.write(f.read())
elif mode == "readlines":
    with open(path, "rb") as f:
        for line in f:
            out.write(line)
elif mode == "unbuffered":
    with open(path, "rb", buffering=0) as f:
        while piece := f.read(1000):
            out.write(piece)
elif mode == "pathlib":
    out.write(pathlib.Path(path).read_bytes())
elif mode == "copyfileobj":
    with open(path, "rb") as f:
        shutil.copyfileobj(f, out)
else:
    sys.exit(f"no mode {mode}")
