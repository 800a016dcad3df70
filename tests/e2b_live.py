"""A real E2B sandbox for scripts/live-e2b: made for one run of the suite, deleted after it.

It is looked into by calls of its own, so that what the daemon says of processes is checked by
somebody else.
"""

import base64
import json
import os
import struct
import urllib.parse
import urllib.request

TTL_SECONDS = 3600
PORT = 49983

# The pids of the processes whose argv or environment holds $1, this look not counted.
FIND = r"""
for d in /proc/[0-9]*; do
	pid=${d#/proc/}
	[ "$pid" = $$ ] && continue
	grep -qaF -e "$1" "$d/cmdline" "$d/environ" 2>/dev/null && echo "$pid"
done
"""


class Sandbox:
    def __init__(self):
        self.key = os.environ["E2B_API_KEY"]
        domain = os.environ.get("E2B_DOMAIN", "e2b.app")
        self.api = os.environ.get("E2B_API_URL", f"https://api.{domain}")
        template = os.environ.get("E2B_TEMPLATE", "base")
        body = {"templateID": template, "timeout": TTL_SECONDS, "secure": True}
        made = json.loads(self.call("POST", "/sandboxes", body))
        self.id = made["sandboxID"]
        self.token = made.get("envdAccessToken")
        domain = made.get("domain") or domain
        self.url = os.environ.get("E2B_SANDBOX_URL", f"https://{PORT}-{self.id}.{domain}")

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"x-api-key": self.key, "content-type": "application/json"}
        request = urllib.request.Request(self.api + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def delete(self):
        self.call("DELETE", f"/sandboxes/{self.id}")

    def run(self, script, *arguments):
        """What a shell script in it, run by root, writes to stdout."""
        process = {"cmd": "/bin/sh", "args": ["-c", script, "sh", *arguments], "cwd": "/"}
        message = json.dumps({"process": process, "stdin": False}).encode()
        headers = {
            "content-type": "application/connect+json",
            "connect-protocol-version": "1",
            "connect-timeout-ms": "30000",
            "authorization": "Basic " + base64.b64encode(b"root:").decode(),
            "e2b-sandbox-id": self.id,
            "e2b-sandbox-port": str(PORT),
            "user-agent": "spawnfs-test",
        }
        if self.token:
            headers["x-access-token"] = self.token
        request = urllib.request.Request(
            self.url + "/process.Process/Start",
            struct.pack(">BI", 0, len(message)) + message,
            headers,
            method="POST",
        )
        out = b""
        with urllib.request.urlopen(request, timeout=60) as answer:
            while len(head := answer.read(5)) == 5:
                flags, length = struct.unpack(">BI", head)
                payload = json.loads(answer.read(length))
                assert not (flags & 2 and "error" in payload), payload
                data = payload.get("event", {}).get("data", {})
                out += base64.b64decode(data.get("stdout", ""))
        return out

    def processes(self, mark):
        return [int(pid) for pid in self.run(FIND, os.fspath(mark)).split()]
