// A Kubernetes API server and kubelet, as much as `kubectl exec` needs: one pod, whose place is
// wherever this runs. Says "ready PORT"; ends with its input.
//
// As the real ones: a command whose client has gone goes on, and sees the end of its input;
// a program that is not there is told on stdout, with status 126.
import { spawn } from "node:child_process";
import http from "node:http";
import { answer } from "./answers.mjs";
import { Session } from "./spdy.mjs";

const POD = "/api/v1/namespaces/default/pods/pod";
const PROTOCOL = "v4.channel.k8s.io";
const STREAMS = ["stdin", "stdout", "stderr"];

const RESOURCES = {
	"/api": { kind: "APIVersions", versions: ["v1"] },
	"/apis": { kind: "APIGroupList", apiVersion: "v1", groups: [] },
	"/api/v1": {
		kind: "APIResourceList",
		groupVersion: "v1",
		resources: [{ name: "pods", namespaced: true, kind: "Pod", verbs: ["get"] }],
	},
	[POD]: {
		kind: "Pod",
		apiVersion: "v1",
		metadata: { name: "pod", namespace: "default" },
		spec: { containers: [{ name: "main", image: "none" }] },
		status: { phase: "Running" },
	},
};

const failure = (reason, message, more) =>
	({ kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", reason, message, ...more });

const pathOf = (request) => new URL(request.url, "http://pod").pathname;

const ended = (code) => code === 0
	? { metadata: {}, status: "Success" }
	: failure("NonZeroExitCode", `command terminated with non-zero exit code ${code}`,
		{ details: { causes: [{ reason: "ExitCode", message: `${code}` }] } });

function run(command, streams) {
	const child = spawn(command[0], command.slice(1), { detached: true });
	child.on("spawn", () => {
		child.stdin.on("error", () => {});
		streams.stdin?.pipe(child.stdin);
		child.stdout.pipe(streams.stdout);
		child.stderr.pipe(streams.stderr);
		child.on("close", (code) => streams.error.end(JSON.stringify(ended(code ?? 128 + 9))));
	});
	child.on("error", (error) => {
		streams.stdout.end(`OCI runtime exec failed: exec failed: ${error.message}: unknown\r\n`);
		streams.stderr.end();
		streams.error.end(JSON.stringify(ended(126)));
	});
}

function exec(request, socket, head) {
	const query = new URL(request.url, "http://pod").searchParams;
	const wanted = ["error", ...STREAMS.filter((name) => query.get(name) === "true")];
	const streams = {};

	socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
		`X-Stream-Protocol-Version: ${PROTOCOL}\r\n\r\n`);
	new Session(socket, head).on("stream", (stream) => {
		streams[stream.headers.streamtype] = stream;
		if (Object.keys(streams).length === wanted.length)
			run(query.getAll("command"), streams);
	});
}

const server = http.createServer((request, response) => {
	const path = pathOf(request);
	const found = RESOURCES[path];
	answer(response, found ? 200 : 404, found ?? failure("NotFound", `${path} is not there`, { code: 404 }));
});
server.on("upgrade", (request, socket, head) => {
	socket.on("error", () => {});
	if (pathOf(request) === `${POD}/exec` && request.headers.upgrade === "SPDY/3.1")
		exec(request, socket, head);
	else
		// A newer client tries WebSocket first.
		socket.end("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
});
server.listen(0, "127.0.0.1", () => console.log(`ready ${server.address().port}`));
process.stdin.on("end", () => process.exit(0)).resume();
