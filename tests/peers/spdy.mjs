// The server's side of SPDY/3.1, as much as kubectl's streams need: no flow control (the client's
// library has none), no settings. Source: SPDY Protocol, Draft 3.1, sections 2.2, 2.6 and 2.6.10.
import { EventEmitter } from "node:events";
import { Duplex } from "node:stream";
import zlib from "node:zlib";
import dictionary from "spdy-transport/lib/spdy-transport/protocol/spdy/dictionary.js";

const VERSION = 3;
const SYN_STREAM = 1, SYN_REPLY = 2, RST_STREAM = 3, PING = 6, GOAWAY = 7;
const FIN = 1;
const ZLIB = { dictionary: dictionary["3.1"], flush: zlib.constants.Z_SYNC_FLUSH };
const NO_HEADERS = Buffer.alloc(4);
const HEAD_BYTES = 8;
const ID_MASK = 0x7fffffff;

// Names and values, each behind its length, all behind their count.
function parseHeaders(block) {
	const headers = {};
	let at = 4;
	const word = () => {
		const length = block.readUInt32BE(at);
		at += 4 + length;
		return block.toString("latin1", at - length, at);
	};
	for (let n = block.readUInt32BE(0); n > 0; n--) {
		const name = word();
		headers[name] = word();
	}
	return headers;
}

// Blocks of all frames are one zlib stream: what is put in comes out in the same order.
function inTurn(transform) {
	const waiting = [];
	transform.on("data", (data) => waiting.shift()(data));
	return (data, then) => {
		waiting.push(then);
		transform.write(data);
	};
}

class Stream extends Duplex {
	constructor(session, id) {
		super();
		Object.assign(this, { session, id });
	}

	_read() {
		this.session.socket.resume();
	}

	_write(data, _encoding, done) {
		this.session.send(this.id, 0, data, done);
	}

	_final(done) {
		this.session.send(this.id, FIN, Buffer.alloc(0), done);
	}
}

// Emits "stream" for each that the client opens; they end with the socket.
export class Session extends EventEmitter {
	constructor(socket, head) {
		super();
		this.socket = socket;
		this.streams = new Map();
		this.partial = head;
		this.inflate = inTurn(zlib.createInflate(ZLIB));
		this.deflate = inTurn(zlib.createDeflate(ZLIB));
		socket.on("data", (data) => this.take(data));
		socket.on("error", () => {});
		socket.on("close", () => this.close());
	}

	close() {
		for (const stream of this.streams.values())
			stream.push(null);
		this.streams.clear();
		this.emit("close");
	}

	send(word, flags, data, done) {
		const head = Buffer.alloc(HEAD_BYTES);
		head.writeUInt32BE(word >>> 0, 0);
		head.writeUInt32BE(((flags << 24) | data.length) >>> 0, 4);
		this.socket.write(Buffer.concat([head, data]), () => done?.());
	}

	control(type, data) {
		this.send((0x8000 | VERSION) * 0x10000 + type, 0, data);
	}

	take(data) {
		this.partial = Buffer.concat([this.partial, data]);
		while (this.partial.length >= HEAD_BYTES) {
			const word = this.partial.readUInt32BE(0), length = this.partial.readUInt32BE(4) & 0xffffff;
			if (this.partial.length < HEAD_BYTES + length)
				return;
			const flags = this.partial[4], body = this.partial.subarray(HEAD_BYTES, HEAD_BYTES + length);
			this.partial = this.partial.subarray(HEAD_BYTES + length);
			if (word <= ID_MASK)
				this.data(word, flags, body);
			else
				this.frame(word & 0xffff, flags, body);
		}
	}

	data(id, flags, body) {
		const stream = this.streams.get(id);
		if (stream && body.length && !stream.push(body))
			this.socket.pause();
		if (stream && flags & FIN)
			stream.push(null);
	}

	frame(type, flags, body) {
		if (type === SYN_STREAM)
			this.open(body.readUInt32BE(0) & ID_MASK, flags, body.subarray(10));
		else if (type === PING)
			this.control(PING, body);
		else if (type === RST_STREAM)
			this.data(body.readUInt32BE(0) & ID_MASK, FIN, Buffer.alloc(0));
		else if (type === GOAWAY)
			this.socket.end();
	}

	open(id, flags, block) {
		const stream = new Stream(this, id);
		this.streams.set(id, stream);
		if (flags & FIN)
			stream.push(null);
		const reply = Buffer.alloc(4);
		reply.writeUInt32BE(id);
		this.inflate(block, (plain) => {
			stream.headers = parseHeaders(plain);
			this.deflate(NO_HEADERS, (packed) => {
				this.control(SYN_REPLY, Buffer.concat([reply, packed]));
				this.emit("stream", stream);
			});
		});
	}
}
