// /_test/: what tests look at and turn.
//
//     GET  /_test/state   sandboxes with their commands and processes, counted calls, connections
//     POST /_test/set     {"sandbox": ID, jsonOnly, cutTail, retainMs, defaultUser, version}, and
//                         for the whole peer {version, maxSandboxes, delays: {CALL: ms}}
//     POST /_test/plan    faults to come: fault.mjs
//     POST /_test/cut     all connections but the one it comes by are reset
//     POST /_test/goaway  all HTTP/2 connections take no new streams; those that run go on
//     POST /_test/reset   forgets faults, delays and counts

import { answer, readBody } from "./answers.mjs";

export const isTestPath = (path) => path.startsWith("/_test/");

const SANDBOX_KNOBS = ["jsonOnly", "cutTail", "retainMs", "defaultUser", "version", "envs"];
const PEER_KNOBS = ["version", "maxSandboxes", "delays", "domain"];

const commandState = (command) => ({
	pid: command.pid,
	cmd: command.config.cmd,
	args: command.config.args,
	envs: command.config.envs,
	tag: command.tag,
	leaderEnded: command.leaderEnded,
	listeners: command.listeners.size,
	stdin: command.hasStdin,
	limit: command.lifeMs,
	inputCalls: command.inputCalls,
	inputPeak: command.inputPeak,
	inputs: command.inputs,
	inputLargest: command.inputLargest,
});

const sandboxState = (sandbox) => ({
	id: sandbox.id,
	templateID: sandbox.templateID,
	state: sandbox.paused ? "paused" : "running",
	secure: sandbox.accessToken !== undefined,
	ttl: sandbox.endAt === undefined ? null : (sandbox.endAt - Date.now()) / 1000,
	metadata: sandbox.metadata,
	commands: [...sandbox.commands.values()].map(commandState),
	processes: sandbox.processes(),
});

function turn(target, knobs, values) {
	for (const [name, value] of Object.entries(values)) {
		if (!knobs.includes(name))
			throw new Error(`no knob ${name}`);
		target[name] = value;
	}
}

function reset(peer) {
	peer.plans.splice(0);
	peer.calls = {};
	peer.spoiled = 0;
	peer.delays = {};
}

export async function serveTest(peer, req, res, path) {
	if (path === "/_test/state") {
		return answer(res, 200, {
			sandboxes: [...peer.sandboxes.values()].map(sandboxState),
			calls: peer.calls,
			connections: { open: peer.sockets.size, total: peer.connections },
			plans: peer.plans.length,
			spoiled: peer.spoiled,
		});
	}
	const body = JSON.parse((await readBody(req)).toString() || "{}");
	if (path === "/_test/set") {
		const { sandbox, ...values } = body;
		if (sandbox === undefined)
			turn(peer, PEER_KNOBS, values);
		else
			turn(peer.sandboxes.get(sandbox), SANDBOX_KNOBS, values);
	} else if (path === "/_test/plan") {
		peer.plans.push(...(Array.isArray(body) ? body : [body]));
	} else if (path === "/_test/cut") {
		for (const socket of peer.sockets)
			if (socket.remotePort !== req.socket.remotePort)
				socket.destroy();
	} else if (path === "/_test/goaway") {
		for (const session of peer.sessions) {
			if (session.closed)
				continue;
			session.goaway(0, 2 ** 31 - 1); // RFC 9113, 6.8: a word before, then the last stream
			setTimeout(() => session.close(), 1000);
		}
	} else if (path === "/_test/reset") {
		reset(peer);
	} else {
		return answer(res, 404, `no ${path}`);
	}
	answer(res, 200, {});
}
