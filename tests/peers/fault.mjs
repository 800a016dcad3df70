// Faults to come. A plan is JSON, sent to /_test/plan before the request that it spoils:
//
//     {"call": "Start", "match": "TEXT", "skip": N, "times": N, "wait": MS, "fault": NAME, ...}
//
// call: an RPC's name or "POST /sandboxes/ID/connect". match: only a request whose body has
// this text. skip: how many fitting requests go by first. times: how many it spoils, 1 if absent.
// wait: milliseconds that it is served later; without a fault it is only late.
//
// Instead of an answer (with "run": true the call is carried out all the same, its answer lost):
//     answer   {status, body, headers}: as if a proxy had answered; body is text or JSON
//     reset, close, stall   no byte; the connection is reset, closed, left open
//
// In the answer. "at" is what it happens to: start, data, keepalive, end, trailer of a stream,
// answer of a unary call; "after" how many of those go by first:
//     cut      {bytes, how}: so many bytes of it (half of it if absent), then clean (the HTTP body
//              ends well), close or reset
//     replace  {flags, length, payload, last}: an envelope with these in its place; last: and then
//              the response ends
//     repeat   it comes twice
//     append   {payload, flags, event}: an envelope after it, of a text or of an event as JSON
//     prepend  {payload, flags, event}: before it
//     drop     it does not come
//     stall    {}: neither it nor anything after it comes; the connection stays open
//     type     {type}: another content type
//     drip     {every}: all bytes of the HTTP response in packets of one byte, `every` ms apart

import "./base64.mjs";
import { once } from "node:events";
import { fromBinary, fromJson, toBinary, toJson } from "@bufbuild/protobuf";
import { answer } from "./answers.mjs";
import { ProcessService } from "./schema.mjs";

const Response = ProcessService.method.start.output; // Connect's has the same fields
const END_OF_STREAM = 0x02;

// ---- the connection ----

function cutConnection(res, how) {
	if (res.stream) // HTTP/2
		res.stream.close(how === "clean" ? 0 : 2);
	else if (how === "reset")
		res.socket.resetAndDestroy();
	else if (how === "close")
		res.socket.destroySoon();
	else
		res.end();
}

function drip(socket, every) {
	const write = socket.write.bind(socket);
	let waiting = Promise.resolve();
	const oneByOne = async (bytes) => {
		for (const byte of bytes) {
			if (socket.destroyed)
				return;
			write(Buffer.of(byte));
			await new Promise((resolve) => setTimeout(resolve, every));
		}
	};
	socket.write = (data, encoding, done) => {
		const bytes = Buffer.from(data, typeof encoding === "string" ? encoding : "utf8");
		const callback = typeof encoding === "function" ? encoding : done;
		waiting = waiting.then(() => oneByOne(bytes)).then(() => callback?.());
		return true;
	};
	socket.cork = () => {};
}

// ---- envelopes ----

function envelope(flags, payload, length = payload.length) {
	const head = Buffer.alloc(5);
	head.writeUInt8(flags, 0);
	head.writeUInt32BE(length, 1);
	return Buffer.concat([head, payload]);
}

function encodeEvent(event, type) {
	const message = fromJson(Response, { event });
	return type.endsWith("json") ? Buffer.from(JSON.stringify(toJson(Response, message))) :
		Buffer.from(toBinary(Response, message));
}

function plannedEnvelope({ event, payload, flags = 0 }, type) {
	return envelope(flags, event ? encodeEvent(event, type) : Buffer.from(payload));
}

// Which part of a response these bytes are; connect-node writes each envelope at once.
function partOf(bytes, type) {
	if (!type.startsWith("application/connect+"))
		return "answer";
	if (bytes[0] & END_OF_STREAM)
		return "trailer";
	const payload = bytes.subarray(5);
	const message = type.endsWith("json") ? fromJson(Response, JSON.parse(Buffer.from(payload))) :
		fromBinary(Response, payload);
	return message.event.event.case;
}

// What goes out in place of a part: bytes, or nothing when the fault has ended the response.
const PARTS = {
	cut(plan, bytes, { res, write }) {
		const count = plan.bytes ?? bytes.length >> 1;
		if (count > 0)
			write(bytes.subarray(0, count));
		setImmediate(() => cutConnection(res, plan.how ?? "reset"));
		return undefined;
	},
	replace(plan, bytes, { res, write }) {
		const payload = plan.payload === undefined ? bytes.subarray(5) : Buffer.from(plan.payload);
		const instead = envelope(plan.flags ?? bytes[0], payload, plan.length);
		if (!plan.last)
			return instead;
		write(instead);
		setImmediate(() => cutConnection(res, "clean"));
		return undefined;
	},
	repeat: (plan, bytes) => Buffer.concat([bytes, bytes]),
	append: (plan, bytes, { type }) => Buffer.concat([bytes, plannedEnvelope(plan, type)]),
	prepend: (plan, bytes, { type }) => Buffer.concat([plannedEnvelope(plan, type), bytes]),
	drop: () => Buffer.alloc(0),
	stall: () => undefined,
};

// ---- the response of a call that is carried out ----

// What write() would have sent is lost, and the fault comes in its place.
function spoilWhole(plan, res) {
	let spoiled = false;
	const spoil = () => {
		if (spoiled)
			return true;
		spoiled = true;
		for (const name of ["writeHead", "write", "end"])
			delete res[name];
		insteadOfAnswer(plan, res);
		res.write = res.end = () => true;
		return true;
	};
	res.writeHead = () => res;
	res.write = spoil;
	res.end = spoil;
}

function spoilPart(plan, res) {
	const end = res.end.bind(res);
	const write = res.write.bind(res);
	const writeHead = res.writeHead.bind(res);
	let type;
	let toPass = plan.after ?? 0;
	let ended = false;
	res.writeHead = (status, headers) => {
		type = headers["content-type"] ?? "";
		return writeHead(status, headers);
	};
	res.write = (data, ...rest) => {
		if (ended)
			return true;
		const bytes = Buffer.from(data);
		if (partOf(bytes, type) !== (plan.at ?? "answer") || toPass-- !== 0)
			return write(data, ...rest);
		const instead = PARTS[plan.fault](plan, bytes, { res, write, type });
		if (instead === undefined) {
			ended = true;
			return true;
		}
		return instead.length === 0 || write(instead, ...rest);
	};
	res.end = (data, ...rest) => {
		if (typeof data === "string" || data instanceof Uint8Array)
			res.write(data);
		if (!ended || plan.how === "clean" || plan.last)
			end(...rest);
		return res;
	};
}

function spoilType(plan, res) {
	const writeHead = res.writeHead.bind(res);
	res.writeHead = (status, headers) =>
		writeHead(status, { ...headers, "content-type": plan.type });
}

function insteadOfAnswer(plan, res) {
	if (plan.fault === "answer")
		answer(res, plan.status, plan.body, plan.headers);
	else if (plan.fault !== "stall")
		cutConnection(res, plan.fault);
}

// ---- which request ----

// The whole body of a small request, which stays to be read.
async function peek(req) {
	const wanted = Number(req.headers["content-length"] ?? 1);
	const parts = [];
	let size = 0;
	while (size < wanted && !req.destroyed) {
		const part = req.read();
		if (part) {
			parts.push(part);
			size += part.length;
		} else {
			await Promise.race([once(req, "readable"), once(req, "close")]);
		}
	}
	const body = Buffer.concat(parts);
	if (body.length)
		req.unshift(body);
	return body;
}

async function fits(plan, name, req) {
	if (plan.call !== name)
		return false;
	return plan.match === undefined || (await peek(req)).includes(plan.match);
}

async function takePlan(peer, name, req) {
	for (const plan of [...peer.plans]) {
		if (!(await fits(plan, name, req)) || plan.skip-- > 0)
			continue;
		plan.times = (plan.times ?? 1) - 1;
		if (plan.times <= 0)
			peer.plans.splice(peer.plans.indexOf(plan), 1);
		return plan;
	}
	return undefined;
}

// Spoils a request that a plan is for. True: it has been answered, or never will be.
export async function applyPlan(peer, name, req, res) {
	if (peer.plans.length === 0)
		return false;
	const plan = await takePlan(peer, name, req);
	if (!plan)
		return false;
	peer.spoiled++;
	if (plan.wait)
		await new Promise((resolve) => setTimeout(resolve, plan.wait));
	if (!plan.fault)
		return false;
	const whole = ["answer", "reset", "close"].includes(plan.fault) ||
		(plan.fault === "stall" && plan.at === undefined);
	if (plan.fault === "drip")
		drip(res.socket, plan.every ?? 0);
	else if (plan.fault === "type")
		spoilType(plan, res);
	else if (!whole)
		spoilPart(plan, res);
	else if (plan.run)
		spoilWhole(plan, res);
	else
		insteadOfAnswer(plan, res);
	return whole && !plan.run;
}
