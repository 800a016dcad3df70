// One command of a sandbox: its pipes, its listeners, its end.

const READ_SIZE = 32 << 10; // of a real envd: one read is one data event
const QUEUE_CHUNKS = 64;
const NICE_WRAPPER = "echo 100 2>/dev/null >/proc/$$/oom_score_adj; " +
	'exec ionice -c 2 -n 4 nice -n 0 "$@"';

const SIGNAL_TEXT = {
	1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction",
	5: "trace/breakpoint trap", 6: "aborted", 7: "bus error", 8: "floating point exception",
	9: "killed", 10: "user defined signal 1", 11: "segmentation fault",
	12: "user defined signal 2", 13: "broken pipe", 14: "alarm clock", 15: "terminated",
};

const given = (error) => ({ case: "error", value: error });

// The end event: Go's ExitError fills in `error` for any end but exit 0.
function endEvent({ code, signal, dumped }) {
	if (signal === null) {
		const status = `exit status ${code}`;
		return { exitCode: code, exited: true, status, errorGiven: code ? given(status) : {} };
	}
	const text = SIGNAL_TEXT[signal] ?? `signal ${signal}`;
	const status = `signal: ${text}${dumped ? " (core dumped)" : ""}`;
	return { exitCode: -1, exited: false, status, errorGiven: given(status) };
}

// A stream that listens to a command. The command waits until what it sent was taken: one
// listener that does not read holds back all.
export class Listener {
	#offered; // {event, taken}
	#wake;
	closed = false;

	offer(event) {
		if (this.closed)
			return undefined;
		return new Promise((taken) => {
			this.#offered = { event, taken };
			this.#wake?.();
		});
	}

	close() {
		this.closed = true;
		this.#offered?.taken();
		this.#offered = undefined;
	}

	#wait(signal, quiet) {
		return new Promise((resolve) => {
			let timer;
			this.#wake = () => {
				clearTimeout(timer);
				signal.removeEventListener("abort", this.#wake);
				this.#wake = undefined;
				resolve();
			};
			signal.addEventListener("abort", this.#wake);
			if (quiet !== undefined)
				timer = setTimeout(this.#wake, quiet);
		});
	}

	// The next event; undefined when nothing came within `quiet` milliseconds.
	async next(signal, quiet) {
		signal.throwIfAborted();
		if (!this.#offered)
			await this.#wait(signal, quiet);
		signal.throwIfAborted();
		const offered = this.#offered;
		this.#offered = undefined;
		offered?.taken();
		return offered?.event;
	}
}

export class Command {
	listeners = new Set();
	end; // the fields of its end event, once it is over
	inputCalls = 0; // how many writes and closes of its stdin are under way
	inputPeak = 0; // the most that ever were
	inputs = 0; // writes that came
	inputLargest = 0; // bytes of one write
	outputOpen = 0; // how many of stdout and stderr are open
	#child;
	#chunks = [];
	#moreChunks;
	#signalled = false; // its pipes go with its leader
	#leaderEnd;
	#inputBusy = Promise.resolve();
	#cutTail;
	#held = []; // the last chunk, kept back after a signal that cuts the tail

	constructor({ config, tag, cutTail = false }) {
		this.config = config;
		this.tag = tag;
		this.#cutTail = cutTail;
	}

	get pid() {
		return this.#child.pid;
	}

	get leaderEnded() {
		return this.#leaderEnd !== undefined;
	}

	async start(spawner, { env, cwd, stdin, user }) {
		const argv = ["/bin/sh", "-c", NICE_WRAPPER, "--", this.config.cmd, ...this.config.args];
		let ended;
		const leader = new Promise((resolve) => { ended = resolve; });
		this.#child = await spawner.start({ argv, env, cwd, stdin, user }, ended);
		this.hasStdin = stdin;
		this.#child.stdin?.on("error", () => {}); // each write tells its own
		this.#read(this.#child.stdout, "stdout");
		this.#read(this.#child.stderr, "stderr");
		leader.then((end) => {
			this.#leaderEnd = end;
			this.#release();
		});
	}

	#read(stream, name) {
		this.outputOpen++;
		stream.on("data", (data) => {
			for (let at = 0; at < data.length; at += READ_SIZE)
				this.#chunks.push({ case: name, value: data.subarray(at, at + READ_SIZE) });
			if (this.#chunks.length >= QUEUE_CHUNKS) {
				this.#child.stdout.pause();
				this.#child.stderr.pause();
			}
			this.#moreChunks?.();
		});
		stream.on("error", () => {});
		stream.on("close", () => {
			this.outputOpen--;
			this.#moreChunks?.();
		});
	}

	// Go's Wait after a signal: once the leader is dead the pipes are closed, read or not.
	#release() {
		if (this.#signalled && this.#leaderEnd) {
			this.#child.stdout.destroy();
			this.#child.stderr.destroy();
		}
		this.#moreChunks?.();
	}

	async #take() {
		for (;;) {
			if (this.#chunks.length)
				return this.#chunks.shift();
			if (!this.outputOpen && this.#leaderEnd)
				return undefined;
			this.#child.stdout.resume();
			this.#child.stderr.resume();
			await new Promise((resolve) => { this.#moreChunks = resolve; });
		}
	}

	// Hands out the output; resolves at the end. What nobody listens to is thrown away.
	async run() {
		for (let chunk; (chunk = await this.#take()); ) {
			if (this.#cutTail && this.#signalled) {
				this.#held.push(chunk);
				if (this.#held.length < 2)
					continue;
				chunk = this.#held.shift();
			}
			for (const listener of this.listeners)
				await listener.offer({ case: "data", value: { output: chunk } });
		}
		this.end = endEvent(this.#leaderEnd);
		this.#child.stdin?.destroy();
		this.#child.reap();
	}

	async tellEnd() {
		for (const listener of this.listeners)
			await listener.offer({ case: "end", value: this.end });
	}

	signal(signo) {
		this.#signalled = true;
		if (!this.#leaderEnd && this.pid > 1)
			process.kill(this.pid, signo);
		this.#release();
	}

	// Waits like a blocking write(2): until all of it is in the pipe, whatever the client does.
	write(data) {
		this.inputs++;
		this.inputLargest = Math.max(this.inputLargest, data.length);
		return this.#exclusively(() => new Promise((resolve, reject) => {
			const stdin = this.#child.stdin;
			if (!this.hasStdin)
				return reject(new Error("stdin not enabled or closed"));
			if (!stdin || stdin.destroyed)
				return reject(new Error("write |1: broken pipe"));
			stdin.write(data, (e) => e ? reject(new Error("write |1: broken pipe")) : resolve());
		}));
	}

	closeStdin() {
		return this.#exclusively(async () => {
			this.hasStdin = false;
			this.#child.stdin?.destroy();
		});
	}

	#exclusively(action) {
		this.inputCalls++;
		this.inputPeak = Math.max(this.inputPeak, this.inputCalls);
		const done = this.#inputBusy.then(action).finally(() => { this.inputCalls--; });
		this.#inputBusy = done.catch(() => {});
		return done;
	}
}

