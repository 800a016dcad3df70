// A small envd with its control plane, for the tests of the e2b backend:
//
//     envd.mjs [--port N] [--api-key KEY]... [--debug] [--cert FILE --key FILE] [--home FOLDER]
//
// Prints "ready PORT" once it listens on 127.0.0.1, and ends, with all it started, when its
// stdin ends. The control plane, the sandboxes and /_test/ are on the one port. --home: that of all
// users who have one.

import "./base64.mjs";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createSecureServer } from "node:http2";
import { parseArgs } from "node:util";
import { createEnvd } from "./envd_http.mjs";
import { isApiPath, serveApi } from "./api.mjs";
import { refuse } from "./answers.mjs";
import { MARK_NAME, Sandbox } from "./sandbox.mjs";
import { Spawner } from "./spawner.mjs";
import { isTestPath, serveTest } from "./inspect.mjs";
import { applyPlan } from "./fault.mjs";

export const ANY_KEY = "e2b_" + "0".repeat(40);

class Peer {
	sandboxes = new Map();
	templates = new Set(["base"]);
	maxSandboxes = 10_000;
	version = "0.6.13"; // of the envd in new sandboxes
	domain = null;
	calls = {}; // how often each RPC and REST call came
	plans = []; // faults to come
	spoiled = 0; // how many requests got theirs
	delays = {}; // milliseconds before a call is served
	sockets = new Set();
	sessions = new Set(); // HTTP/2
	connections = 0; // ever accepted
	#mark = randomBytes(8).toString("hex");

	constructor(apiKeys, home) {
		this.home = home;
		this.apiKeys = new Set(apiKeys.length ? apiKeys : [ANY_KEY]);
		this.spawner = new Spawner(`${MARK_NAME}=${this.#mark}/`);
	}

	addSandbox(options) {
		const sandbox = new Sandbox({
			...options,
			version: options.version ?? this.version,
			spawner: this.spawner,
			home: this.home,
			peerMark: this.#mark,
			onExpiry: (expired) => expired.autoPause ? expired.pause() : this.removeSandbox(expired),
		});
		this.sandboxes.set(sandbox.id, sandbox);
		return sandbox;
	}

	removeSandbox(sandbox) {
		this.sandboxes.delete(sandbox.id);
		sandbox.destroy();
	}

	count(name) {
		this.calls[name] = (this.calls[name] ?? 0) + 1;
	}
}

function nameOfCall(req, path) {
	const rpc = /^\/process\.Process\/(\w+)$/.exec(path);
	if (rpc)
		return rpc[1];
	return `${req.method} ${path.replace(/^(\/(?:v2\/)?sandboxes\/)[^/]+/, "$1ID")}`;
}

function listener(peer) {
	const serveEnvd = createEnvd(peer);
	return async (req, res) => {
		const path = req.url.split("?", 1)[0];
		try {
			if (isTestPath(path))
				return await serveTest(peer, req, res, path);
			const name = nameOfCall(req, path);
			peer.count(name);
			if (peer.delays[name])
				await new Promise((resolve) => setTimeout(resolve, peer.delays[name]));
			if (await applyPlan(peer, name, req, res))
				return;
			if (isApiPath(path))
				return await serveApi(peer, req, res, path);
			return serveEnvd(req, res, path);
		} catch (e) {
			console.error(e);
			if (!res.headersSent)
				refuse(res, 500, "the peer failed");
		}
	};
}

function listen(peer, { port, tls }) {
	const handle = listener(peer);
	const server = tls ?
		createSecureServer({ cert: readFileSync(tls[0]), key: readFileSync(tls[1]), allowHTTP1: true,
			settings: { maxConcurrentStreams: 1000 } }, handle) :
		createServer({ keepAliveTimeout: 640_000, requestTimeout: 0, highWaterMark: 256 << 10 }, handle);
	server.on(tls ? "secureConnection" : "connection", (socket) => {
		socket.setNoDelay(true);
		peer.connections++;
		peer.sockets.add(socket);
		socket.on("close", () => peer.sockets.delete(socket));
	});
	server.on("session", (session) => {
		peer.sessions.add(session);
		session.on("close", () => peer.sessions.delete(session));
	});
	server.listen(port, "127.0.0.1", 4096, () => console.log(`ready ${server.address().port}`));
}

const { values } = parseArgs({
	options: {
		port: { type: "string", default: "0" },
		"api-key": { type: "string", multiple: true, default: [] },
		debug: { type: "boolean", default: false },
		cert: { type: "string" },
		key: { type: "string" },
		home: { type: "string" },
	},
});

const peer = new Peer(values["api-key"], values.home);
if (values.debug) {
	peer.addSandbox({ id: "debug_sandbox_id", templateID: "base", secure: false, envs: {},
		metadata: {} });
}
listen(peer, {
	port: Number(values.port),
	tls: values.cert ? [values.cert, values.key] : undefined,
});

let ending = false;
async function end(status) {
	if (ending)
		return;
	ending = true;
	await peer.spawner.stop();
	process.exit(status);
}
process.stdin.on("data", () => {});
process.stdin.on("end", () => end(0));
process.on("SIGTERM", () => end(0));
process.on("SIGINT", () => end(0));
