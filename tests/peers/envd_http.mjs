// What stands around envd's RPCs: the way to a sandbox, the token, the plain endpoints and
// the refusals that no RPC handler makes.

import { freemem, totalmem } from "node:os";
import { createContextValues } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { answer, refuse } from "./answers.mjs";
import { ProcessService } from "./schema.mjs";
import { requestKey, routes } from "./process_service.mjs";

const ENVD_PORT = 49983;
const STREAM_TYPES = ["application/connect+json", "application/connect+proto"];
const UNARY_TYPES = ["application/json", "application/proto"];
const INTERNAL = new Set(["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw",
	"/upgrade"]);

const METHODS = new Map(ProcessService.methods.map((method) => [method.name, method]));

// The proxy's errors are HTML for what looks like a browser.
function proxyError(req, res, status, fields) {
	if (/mozilla|chrome|safari/i.test(req.headers["user-agent"] ?? "")) {
		return answer(res, status, `<html><body>${fields.message}</body></html>`,
			{ "content-type": "text/html" });
	}
	return answer(res, status, { ...fields, code: status });
}

// The sandbox id and port that a request asks for; undefined after it was refused.
function address(req, res) {
	const host = (req.headers[":authority"] ?? req.headers.host ?? "").replace(/:\d+$/, "");
	const id = req.headers["e2b-sandbox-id"];
	const port = req.headers["e2b-sandbox-port"];
	const shared = /^(sandbox\.|localhost$|[\d.]+$|\[)/.test(host);
	if (shared && id !== undefined && port !== undefined)
		return { id, port: Number(port) };
	if (shared)
		return answer(res, 400, "missing header");
	const [, directPort, directId] = /^(\d+)-([^.-]+)/.exec(host) ?? [];
	if (directId === undefined)
		return answer(res, 400, "Invalid host");
	return { id: directId, port: Number(directPort) };
}

function findSandbox(peer, req, res) {
	const wanted = address(req, res);
	if (!wanted)
		return undefined;
	const sandbox = peer.sandboxes.get(wanted.id);
	if (!sandbox?.running || sandbox.paused) {
		return proxyError(req, res, 502,
			{ sandboxId: wanted.id, message: "The sandbox was not found" });
	}
	if (wanted.port !== ENVD_PORT) {
		return proxyError(req, res, 502, { sandboxId: wanted.id,
			message: "The sandbox is running but port is not open", port: wanted.port });
	}
	return sandbox;
}

const metrics = () => ({
	ts: Math.floor(Date.now() / 1000),
	cpu_count: 2,
	cpu_used_pct: 1,
	mem_total: totalmem(),
	mem_used: totalmem() - freemem(),
	disk_used: 1 << 30,
	disk_total: 2 ** 34,
});

// Whether connect-node may have the request; if not, it has been refused.
function isRpc(sandbox, req, res, path) {
	const method = METHODS.get(/^\/process\.Process\/(\w+)$/.exec(path)?.[1]);
	if (!method || (method.name === "CloseStdin" && !sandbox.atLeast("0.5.2")))
		return answer(res, 404, "404 page not found\n"), false;
	if (req.method !== "POST")
		return answer(res, 405, undefined, { allow: "POST" }), false;
	let types = method.methodKind === "unary" ? UNARY_TYPES : STREAM_TYPES;
	if (sandbox.jsonOnly)
		types = types.filter((type) => type.endsWith("json"));
	const type = (req.headers["content-type"] ?? "").split(";", 1)[0].trim();
	if (!types.includes(type))
		return answer(res, 415, undefined, { "accept-post": types.join(", ") }), false;
	return true;
}

export function createEnvd(peer) {
	const rpc = connectNodeAdapter({
		routes,
		grpc: false,
		grpcWeb: false,
		acceptCompression: [],
		contextValues: (req) => createContextValues().set(requestKey, req.peer),
	});
	return (req, res, path) => {
		const sandbox = findSandbox(peer, req, res);
		if (!sandbox)
			return;
		if (INTERNAL.has(path))
			return refuse(res, 404, "This endpoint is reserved for the E2B control plane");
		if (path === "/health" && req.method === "GET")
			return answer(res, 204);
		if (sandbox.accessToken && req.headers["x-access-token"] !== sandbox.accessToken) {
			return refuse(res, 401, "unauthorized access, please provide a valid access " +
				"token or method signing if supported");
		}
		if (path === "/metrics" && req.method === "GET")
			return answer(res, 200, metrics());
		if (path === "/envs" && req.method === "GET")
			return answer(res, 200, sandbox.envs);
		if (!isRpc(sandbox, req, res, path))
			return peer.count(`refused with ${res.statusCode}`);
		const noTime = req.headers["connect-timeout-ms"] === "0";
		if (noTime)
			delete req.headers["connect-timeout-ms"];
		req.peer = { sandbox, noTime };
		sandbox.responses.add(res);
		res.on("close", () => sandbox.responses.delete(res));
		rpc(req, res);
	};
}
