// The process service of envd 0.6.13, on connect-node.

import "./base64.mjs";
import { Code, ConnectError, createContextKey } from "@connectrpc/connect";
import { Listener } from "./command.mjs";
import { ProcessService } from "./schema.mjs";

// What the HTTP layer says about a request: {sandbox, noTime}. noTime: the deadline was 0.
export const requestKey = createContextKey(undefined);

const DEFAULT_KEEPALIVE_SECONDS = 90;

const userOf = (context) => {
	const [scheme, value] = (context.requestHeader.get("Authorization") ?? "").split(" ");
	if (scheme !== "Basic" || !value)
		return undefined;
	return Buffer.from(value, "base64").toString().split(":")[0];
};

const keepaliveMs = (context) => {
	const text = context.requestHeader.get("Keepalive-Ping-Interval") ?? "";
	const seconds = /^-?\d+$/.test(text) ? Number(text) : DEFAULT_KEEPALIVE_SECONDS;
	if (seconds <= 0) {
		console.error("a keepalive interval of 0 ends a real envd");
		process.exit(2);
	}
	return seconds * 1000;
};

const lifeMs = (context) => Number(context.requestHeader.get("Connect-Timeout-Ms") ?? 0);

const response = (event) => ({ event: { event } });
const startEvent = (command) => response({ case: "start", value: { pid: command.pid } });

// Yields what the listener hears, up to the end event, with keepalives in between. A client that
// goes away while an event is on its way to it leaves the generator where it is.
async function* listen(command, listener, context) {
	const interval = keepaliveMs(context);
	const stop = () => {
		command.listeners.delete(listener);
		listener.close();
	};
	context.signal.addEventListener("abort", stop);
	try {
		for (;;) {
			const event = await listener.next(context.signal, interval);
			if (event)
				yield response(event);
			else if (command.outputOpen)
				yield response({ case: "keepalive", value: {} });
			if (event?.case === "end")
				return;
		}
	} finally {
		stop();
	}
}

async function* start(request, context) {
	const { sandbox, noTime } = context.values.get(requestKey);
	if (request.pty)
		throw new ConnectError("this peer has no terminals", Code.Unimplemented);
	const listener = new Listener();
	const command = await sandbox.start({
		config: request.process ?? { cmd: "", args: [], envs: {}, cwdGiven: {} },
		tag: request.tagGiven.value,
		stdin: request.stdinGiven.value ?? true,
		userName: userOf(context),
		listener,
		lifeMs: lifeMs(context),
	});
	if (noTime) {
		command.listeners.delete(listener);
		listener.close();
		throw new ConnectError("context deadline exceeded", Code.DeadlineExceeded);
	}
	yield startEvent(command);
	yield* listen(command, listener, context);
}

async function* connect(request, context) {
	const { sandbox, noTime } = context.values.get(requestKey);
	if (noTime)
		throw new ConnectError("context deadline exceeded", Code.DeadlineExceeded);
	const selector = request.process?.selector;
	let command;
	try {
		command = sandbox.find(selector);
	} catch (e) {
		command = sandbox.find(selector, sandbox.retained);
		yield startEvent(command);
		yield response({ case: "end", value: command.end });
		return;
	}
	const listener = new Listener();
	command.listeners.add(listener);
	yield startEvent(command);
	yield* listen(command, listener, context);
}

async function feed(command, input) {
	if (input?.input.case === undefined)
		throw new ConnectError("invalid input type <nil>", Code.Unimplemented);
	if (input.input.case === "pty")
		throw new ConnectError("error writing to tty: tty not assigned to process", Code.Internal);
	try {
		await command.write(input.input.value);
	} catch (e) {
		throw new ConnectError(`error writing to stdin: ${e.message}`, Code.Internal);
	}
}

const sandboxOf = (context) => context.values.get(requestKey).sandbox;

async function streamInput(requests, context) {
	let command;
	for await (const { event } of requests) {
		if (event.case === "start")
			command = sandboxOf(context).find(event.value.process?.selector);
		else if (event.case === "data")
			await feed(command, event.value.input);
	}
	return {};
}

function sendSignal(request, context) {
	const command = sandboxOf(context).find(request.process?.selector);
	if (request.signal !== 9 && request.signal !== 15)
		throw new ConnectError(`invalid signal: ${request.signal}`, Code.Unimplemented);
	command.signal(request.signal);
	return {};
}

function list(request, context) {
	const processes = [...sandboxOf(context).commands.values()].map((command) => ({
		config: command.config,
		pid: command.pid,
		tagGiven: command.tag === undefined ? {} : { case: "tag", value: command.tag },
	}));
	return { processes };
}

export const routes = (router) => router.service(ProcessService, {
	list,
	start,
	connect,
	sendInput: async (request, context) => {
		await feed(sandboxOf(context).find(request.process?.selector), request.input);
		return {};
	},
	streamInput,
	sendSignal,
	closeStdin: async (request, context) => {
		await sandboxOf(context).find(request.process?.selector).closeStdin();
		return {};
	},
});
