// The peer's side of spawner.py.

import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { Socket } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("spawner.py", import.meta.url));
const { O_RDONLY, O_WRONLY, O_NONBLOCK } = constants;

// A pipe of the spawner's as a stream of our own; null when its other end is closed already.
function openPipe(spawnerPid, fd, flags) {
	let own;
	try {
		own = openSync(`/proc/${spawnerPid}/fd/${fd}`, flags | O_NONBLOCK);
	} catch (e) {
		if (e.code === "ENXIO") // a pipe without readers: open(2)
			return null;
		throw e;
	}
	try {
		const readable = flags === O_RDONLY;
		return new Socket({ fd: own, readable, writable: !readable });
	} catch (e) {
		closeSync(own);
		throw e;
	}
}

export class Spawner {
	#program;
	#waiting = new Map(); // id -> callback(answer)
	#nextId = 1;

	constructor(mark) {
		this.#program = spawn("/usr/bin/python3", ["-S", "-E", PROGRAM, mark],
			{ stdio: ["pipe", "pipe", "inherit"] });
		this.#program.on("exit", (code, signal) => {
			console.error(`the spawner ended: ${code ?? signal}`);
			process.exit(1);
		});
		createInterface({ input: this.#program.stdout }).on("line", (line) => {
			const answer = JSON.parse(line);
			this.#waiting.get(answer.id)(answer);
		});
	}

	// Ends the spawner, which kills all; resolves when that is done.
	stop() {
		this.#program.removeAllListeners("exit");
		return new Promise((resolve) => {
			this.#program.once("exit", resolve);
			this.#program.stdin.end();
		});
	}

	#ask(request) {
		this.#program.stdin.write(JSON.stringify(request) + "\n");
	}

	// Resolves to {pid, stdin, stdout, stderr, reap}; onEnd({code, signal, dumped}) follows once,
	// and the process is a zombie until reap().
	start({ argv, env, cwd, stdin, user }, onEnd) {
		const id = this.#nextId++;
		return new Promise((resolve, reject) => {
			this.#waiting.set(id, (answer) => {
				if (answer.ended) {
					this.#waiting.delete(id);
					onEnd(answer);
				} else if (answer.error) {
					this.#waiting.delete(id);
					reject(new Error(answer.error));
				} else {
					const [input, output, errors] = answer.pipes;
					const open = (fd, flags) => fd === null ? null :
						openPipe(this.#program.pid, fd, flags);
					const child = {
						pid: answer.pid,
						stdin: open(input, O_WRONLY),
						stdout: open(output, O_RDONLY),
						stderr: open(errors, O_RDONLY),
						reap: () => this.#ask({ op: "reap", id }),
					};
					this.#ask({ op: "opened", id });
					resolve(child);
				}
			});
			this.#ask({ op: "start", id, argv, env, cwd, stdin, user });
		});
	}
}
