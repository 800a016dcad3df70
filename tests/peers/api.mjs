// The control plane: sandboxes made, found, extended and ended over REST.

import { answer, readBody, refuse } from "./answers.mjs";

const MAX_TTL_SECONDS = 86_400;

const common = (peer, sandbox) => ({
	sandboxID: sandbox.id,
	templateID: sandbox.templateID,
	clientID: "6532622b",
	envdVersion: sandbox.version,
	...(sandbox.accessToken ? { envdAccessToken: sandbox.accessToken } : {}),
	domain: peer.domain,
});

const credentials = (peer, sandbox) => ({ ...common(peer, sandbox), trafficAccessToken: null });

const details = (peer, sandbox) => ({
	...common(peer, sandbox),
	state: sandbox.paused ? "paused" : "running",
	startedAt: new Date(sandbox.startedAt).toISOString(),
	endAt: new Date(sandbox.endAt).toISOString(),
	cpuCount: 2,
	memoryMB: 512,
	diskSizeMB: 1024,
	metadata: sandbox.metadata,
});

class Refusal extends Error {
	constructor(code, message) {
		super(message);
		this.code = code;
	}
}

function checkTtl(seconds, least = 1) {
	if (!Number.isInteger(seconds) || seconds < least)
		throw new Refusal(400, "Timeout must be a positive number of seconds");
	if (seconds > MAX_TTL_SECONDS)
		throw new Refusal(400, `Timeout cannot be greater than ${MAX_TTL_SECONDS / 3600} hours`);
	return seconds;
}

async function jsonBody(req) {
	const text = (await readBody(req)).toString();
	try {
		return text === "" ? {} : JSON.parse(text);
	} catch {
		throw new Refusal(400, "Error parsing the request body");
	}
}

function create(peer, body, { secure, ttl }) {
	if (typeof body.templateID !== "string")
		throw new Refusal(400, "templateID is missing");
	if (!peer.templates.has(body.templateID))
		throw new Refusal(404, `template '${body.templateID}' not found`);
	if (peer.sandboxes.size >= peer.maxSandboxes) {
		throw new Refusal(429, "you have reached the maximum number of concurrent E2B " +
			`sandboxes (${peer.maxSandboxes})`);
	}
	return peer.addSandbox({
		templateID: body.templateID,
		secure,
		envs: body.envVars ?? {},
		metadata: body.metadata ?? {},
		autoPause: body.autoPause ?? false,
		ttl: checkTtl(body.timeout ?? ttl),
	});
}

function connect(sandbox, seconds) {
	if (!sandbox.paused) {
		sandbox.extendTtl(seconds);
		return 200;
	}
	sandbox.resume(seconds);
	return 201;
}

function needRunning(sandbox) {
	if (sandbox.paused)
		throw new Refusal(409, `Sandbox ${sandbox.id} is not running`);
}

// METHOD, path with one group for the id, handler(peer, sandbox, body) -> [status, body].
const ROUTES = [
	["POST", /^\/sandboxes$/, (peer, _, body) =>
		[201, credentials(peer, create(peer, body, { secure: body.secure ?? false, ttl: 15 }))]],
	["POST", /^\/v2\/sandboxes$/, (peer, _, body) =>
		[201, credentials(peer, create(peer, body, { secure: true, ttl: 300 }))]],
	["GET", /^\/(?:v2\/)?sandboxes$/, (peer) =>
		[200, [...peer.sandboxes.values()].map((sandbox) => details(peer, sandbox))]],
	["GET", /^\/(?:v2\/)?sandboxes\/([^/]+)$/, (peer, sandbox) => [200, details(peer, sandbox)]],
	["DELETE", /^\/sandboxes\/([^/]+)$/, (peer, sandbox) => {
		peer.removeSandbox(sandbox);
		return [204];
	}],
	["POST", /^\/sandboxes\/([^/]+)\/connect$/, (peer, sandbox, body) =>
		[connect(sandbox, checkTtl(body.timeout)), credentials(peer, sandbox)]],
	["POST", /^\/v2\/sandboxes\/([^/]+)\/connect$/, (peer, sandbox, body) =>
		[connect(sandbox, checkTtl(body.timeout ?? 300)), credentials(peer, sandbox)]],
	["POST", /^\/sandboxes\/([^/]+)\/timeout$/, (peer, sandbox, body) => {
		needRunning(sandbox);
		sandbox.setTtl(checkTtl(body.timeout, 0));
		return [204];
	}],
	["POST", /^\/sandboxes\/([^/]+)\/refreshes$/, (peer, sandbox, body) => {
		needRunning(sandbox);
		sandbox.extendTtl(checkTtl(body.duration ?? 15, 0));
		return [204];
	}],
	["POST", /^\/sandboxes\/([^/]+)\/pause$/, (peer, sandbox) => {
		needRunning(sandbox);
		sandbox.pause();
		return [204];
	}],
	["POST", /^\/sandboxes\/([^/]+)\/resume$/, (peer, sandbox, body) => {
		if (!sandbox.paused)
			throw new Refusal(409, `Sandbox ${sandbox.id} is already running`);
		sandbox.resume(checkTtl(body.timeout ?? 15));
		return [201, credentials(peer, sandbox)];
	}],
];

export const isApiPath = (path) => /^\/(v2\/)?sandboxes(\/|$)/.test(path);

export async function serveApi(peer, req, res, path) {
	const bearer = req.headers.authorization?.replace(/^Bearer /, "");
	if (!peer.apiKeys.has(req.headers["x-api-key"]) && !peer.apiKeys.has(bearer)) {
		return refuse(res, 401, "Invalid API key, please visit https://e2b.dev/docs/api-key " +
			"for more information.");
	}
	const fitting = ROUTES.filter(([, pattern]) => pattern.test(path));
	const route = fitting.find(([method]) => method === req.method);
	if (!route && fitting.length)
		return refuse(res, 405, "method not allowed");
	if (!route)
		return refuse(res, 404, "no such route");
	try {
		const body = req.method === "POST" ? await jsonBody(req) : {};
		const id = route[1].exec(path)[1];
		const sandbox = peer.sandboxes.get(id);
		if (id !== undefined && !sandbox)
			throw new Refusal(404, `Sandbox "${id}" doesn't exist or you don't have access to it`);
		const [status, result] = route[2](peer, sandbox, body);
		answer(res, status, result);
	} catch (e) {
		if (!(e instanceof Refusal))
			throw e;
		refuse(res, e.code, e.message);
	}
}
