"""A far side for via: a machine of its own as far as a process can tell, and a client like kubectl.

Far() is the machine: a server in a PID name space of its own, which runs commands below itself, so
that nothing on this side can reach them but by another call of the client. The client carries
stdin, stdout, stderr and the status over a Unix socket:

    python3 tests/via_far.py exec SOCKET -- COMMAND...

As with kubectl and docker, the command goes on when its client dies, and sees the end of its input.
"""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading

HEAD = struct.Struct("!cI")
PIECE = 32 << 10
# Whatever runs on the far side has its client's pid here.
CLIENT = "VIA_FAR_CLIENT"


def send(connection, kind, data=b""):
    connection.sendall(HEAD.pack(kind, len(data)) + data)


def receive(connection):
    """(kind, data), or None at the end."""
    data = b""
    for size in (HEAD.size, None):
        if size is None:
            kind, size = HEAD.unpack(data)
            data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                return None
            data += piece
    return kind, data


# ---- The machine ----


def feed(connection, process):
    with contextlib.suppress(OSError):
        while (message := receive(connection)) and message[0] == b"i":
            if not message[1]:
                break
            process.stdin.write(message[1])
    with contextlib.suppress(OSError):
        process.stdin.close()


def carry(connection, kind, pipe, lock):
    while data := os.read(pipe.fileno(), PIECE):
        with contextlib.suppress(OSError), lock:
            send(connection, kind, data)


def handle(connection):
    client, argv = json.loads(receive(connection)[1])
    argv = [os.fsencode(a) for a in argv]
    lock = threading.Lock()
    try:
        process = subprocess.Popen(argv, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True,
                                   env={**os.environ, CLIENT: str(client)})
    except OSError as error:
        send(connection, b"e", f"cannot exec: {error}\n".encode())
        send(connection, b"x", b"126")
        connection.close()
        return
    threading.Thread(target=feed, args=(connection, process), daemon=True).start()
    readers = [
        threading.Thread(target=carry, args=(connection, kind, pipe, lock), daemon=True)
        for kind, pipe in ((b"o", process.stdout), (b"e", process.stderr))
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    status = process.wait()
    with contextlib.suppress(OSError):
        send(connection, b"x", str(status if status >= 0 else 128 - status).encode())
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def serve(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(200)
    print("up", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle, args=(connection,), daemon=True).start()


class Far:
    def __init__(self, directory):
        self.socket = str(pathlib.Path(directory) / "far.sock")
        # The init of the name space: when it dies everything in it does.
        self.process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, __file__,
             "serve", self.socket],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout.readline() == b"up\n"

    def prefix(self, *options):
        return shlex.join([sys.executable, __file__, "exec", self.socket, *options, "--"])

    def close(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- The client ----


def forward_input(connection):
    with contextlib.suppress(OSError):
        while data := os.read(0, PIECE):
            send(connection, b"i", data)
        send(connection, b"i")


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data) :]


def execute(path, options, argv):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    send(connection, b"a", json.dumps([os.getpid(), argv]).encode())
    threading.Thread(target=forward_input, args=(connection,), daemon=True).start()
    limit = int(options.get("--die-after", -1))
    while message := receive(connection):
        kind, data = message
        if kind == b"x":
            code = int(data)
            if code and "--kubectl" in options:
                os.write(2, f"command terminated with exit code {code}\n".encode())
            os._exit(code)
        if kind == b"o" and 0 <= limit < len(data):
            write_all(1, data[:limit])
            os._exit(0)
        if kind == b"o" and limit >= 0:
            limit -= len(data)
        write_all(1 if kind == b"o" else 2, data)
    os.write(2, b"connection lost\n")
    os._exit(1)


def main():
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    end = sys.argv.index("--")
    options = dict((o.split("=", 1) + [""])[:2] for o in sys.argv[3:end])
    execute(sys.argv[2], options, sys.argv[end + 1 :])


if __name__ == "__main__":
    main()
