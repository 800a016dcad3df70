"""Starts and watches the commands of the test envd, as its Go runtime does and Node cannot.

A command gets real pipes, and stays a zombie until it is reaped by request: an ended leader
whose child holds the pipes is in state Z on a real envd. Node's own child_process gives
socket pairs and reaps at once.

Requests come as JSON lines on stdin, answers go as JSON lines to stdout. The end of stdin
ends everything: each process with a variable that begins with argv[1] is killed.
"""

import json
import os
import selectors
import signal
import subprocess
import sys


class Spawner:
    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ)
        self.children = {}
        self.unread = b""

    def say(self, **answer):
        os.write(1, json.dumps(answer).encode() + b"\n")

    def start(self, id, argv, env, cwd, stdin, user=None):
        pipe = subprocess.PIPE
        identity = {}
        if user and user["uid"] != os.geteuid():
            groups = os.getgrouplist(user["name"], user["gid"])
            identity = {"user": user["uid"], "group": user["gid"], "extra_groups": groups}
        try:
            child = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=pipe if stdin else subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                bufsize=0,
                **identity,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            self.say(id=id, error=str(e))
            return
        self.children[id] = child
        pipes = [s and s.fileno() for s in (child.stdin, child.stdout, child.stderr)]
        self.say(id=id, pid=child.pid, pipes=pipes)
        self.selector.register(os.pidfd_open(child.pid), selectors.EVENT_READ, id)

    def opened(self, id):
        """The peer has opened /proc/PID/fd/N of each pipe."""
        for stream in (self.children[id].stdin, self.children[id].stdout, self.children[id].stderr):
            if stream:
                stream.close()

    def reap(self, id):
        self.children.pop(id).wait()

    def ended(self, key):
        self.selector.unregister(key.fd)
        os.close(key.fd)
        child = self.children[key.data]
        end = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        exited = end.si_code == os.CLD_EXITED
        self.say(
            id=key.data,
            ended=True,
            code=end.si_status if exited else None,
            signal=None if exited else end.si_status,
            dumped=end.si_code == os.CLD_DUMPED,
        )

    def requests(self):
        data = os.read(0, 1 << 20)
        if not data:
            return False
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            getattr(self, request.pop("op"))(**request)
        return True

    def run(self):
        while True:
            for key, _ in self.selector.select():
                if key.fd != 0:
                    self.ended(key)
                elif not self.requests():
                    return


def kill_marked(mark):
    """Kills every process with a variable that begins so, until none is found."""
    mine = os.getpid()
    found = True
    while found:
        found = False
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in (1, mine):
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as f:
                    if not any(v.startswith(mark) for v in f.read().split(b"\0")):
                        continue
                os.kill(int(name), signal.SIGKILL)
                found = True
            except OSError:
                continue  # it ended while we looked


# Caught, not ignored: commands inherit what is ignored, and a shell in the background ignores both.
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, lambda *_: None)
try:
    Spawner().run()
finally:
    kill_marked(os.fsencode(sys.argv[1]))
