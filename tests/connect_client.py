"""A bare client of the Connect protocol in JSON, for the tests of the test envd itself."""

import base64
import http.client
import json
import struct

MESSAGE, END_OF_STREAM = 0, 2


def envelope(payload, flags=MESSAGE):
    return struct.pack(">BI", flags, len(payload)) + payload


def unwrap(event):
    """("data", {...}) of {"event": {"data": {...}}}."""
    ((name, fields),) = event["event"].items()
    return name, fields


class Stream:
    """A running Start or Connect: a generator of its events, then trailer is set."""

    def __init__(self, connection, response):
        self.connection = connection
        self.response = response
        self.status = response.status
        self.trailer = None

    def envelope(self):
        """(flags, payload); None at the end of the HTTP body."""
        head = self.response.read(5)
        if not head:
            return None
        flags, length = struct.unpack(">BI", head)
        return flags, self.response.read(length)

    def __iter__(self):
        while (found := self.envelope()) is not None:
            flags, payload = found
            if flags == END_OF_STREAM:
                self.trailer = json.loads(payload)
            else:
                yield unwrap(json.loads(payload))

    def next(self):
        return next(iter(self))

    def code(self):
        """The error code of a stream that has nothing but its trailer."""
        assert list(self) == []
        return self.trailer["error"]["code"]

    def close(self):
        self.response.close()
        self.connection.close()


class Result:
    """All of a stream."""

    def __init__(self, stream):
        self.output = {"stdout": bytearray(), "stderr": bytearray()}
        self.end = None
        self.names = []
        self.sizes = []
        for name, fields in stream:
            self.names.append(name)
            if name == "end":
                self.end = fields
            for output, data in fields.items() if name == "data" else ():
                piece = base64.b64decode(data, validate=True)
                self.sizes.append(len(piece))
                self.output[output] += piece
        self.trailer = stream.trailer


class Envd:
    """The envd of one sandbox, as POST /sandboxes described it."""

    def __init__(self, peer, sandbox):
        self.peer = peer
        self.address = ("127.0.0.1", peer.port)
        self.id = sandbox["sandboxID"]
        self.headers = {"e2b-sandbox-id": self.id, "e2b-sandbox-port": "49983"}
        if "envdAccessToken" in sandbox:
            self.headers["x-access-token"] = sandbox["envdAccessToken"]

    def http(self, method, path, body=None, timeout=20, **headers):
        """(connection, response) of a request; the headers' names with _ for -."""
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {**self.headers, **given})
        return connection, connection.getresponse()

    def stream(self, name, *messages, **headers):
        body = b"".join(envelope(json.dumps(m).encode()) for m in messages)
        headers.setdefault("content_type", "application/connect+json")
        return Stream(*self.http("POST", f"/process.Process/{name}", body, **headers))

    def call(self, name, message, **headers):
        """(HTTP status, decoded body) of a unary call."""
        headers.setdefault("content_type", "application/json")
        body = json.dumps(message).encode()
        connection, response = self.http("POST", f"/process.Process/{name}", body, **headers)
        try:
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def start(self, *argv, headers=None, config=None, **fields):
        request = {"process": {"cmd": argv[0], "args": argv[1:], **(config or {})}, **fields}
        return self.stream("Start", request, **(headers or {}))

    def run(self, *argv, **options):
        return Result(self.start(*argv, **options))

    def shell(self, text, **options):
        return self.run("/bin/sh", "-c", text, **options)

    def begin(self, *argv, **options):
        """(pid, stream) of a command that has started."""
        stream = self.start(*argv, **options)
        name, fields = stream.next()
        assert name == "start", (name, fields)
        return fields["pid"], stream

    def on(self, name, pid, **fields):
        """A unary call on a process."""
        return self.call(name, {"process": {"pid": pid}, **fields})

    def send(self, pid, data):
        return self.on("SendInput", pid, input={"stdin": base64.b64encode(data).decode()})

    def list(self):
        status, answer = self.call("List", {})
        assert status == 200, answer
        return answer.get("processes", [])
