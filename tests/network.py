"""What stands between the daemon and a server of the tests, and what it does to their bytes."""

import contextlib
import socket
import threading


class Network:
    """Passes bytes on to a port, each connection by two threads; a subclass says how."""

    def __init__(self, port):
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            server.connect(("127.0.0.1", self.port))
            back = threading.Thread(target=self.pump, args=(server, client, self.there), daemon=True)
            back.start()
            self.pump(client, server, self.here)
            back.join()

    def pump(self, source, sink, step):
        with contextlib.suppress(OSError):
            while step(source, sink):
                pass
            sink.shutdown(socket.SHUT_WR)

    def here(self, client, server):
        data = client.recv(1 << 16)
        server.sendall(data)
        return data

    def there(self, server, client):
        data = server.recv(1 << 16)
        client.sendall(data)
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
