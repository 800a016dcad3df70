// A sandbox: its environment, its commands, its time to live. All sandboxes of a peer are
// on this machine; a mark in the environment of its commands tells what belongs to which.

import { randomBytes } from "node:crypto";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import { Command } from "./command.mjs";

export const MARK_NAME = "SPAWNFS_PEER";
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const versionNumber = (text) => text.split(".").reduce((sum, part) => sum * 1000 + Number(part), 0);

const isFolder = (path) => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;

// All users share a home, if one is given: a login shell must not read what the machine's users have.
function findUser(name, sharedHome) {
	for (const line of readFileSync("/etc/passwd", "utf8").split("\n")) {
		const [found, , uid, gid, , home] = line.split(":");
		if (found === name) {
			const own = sharedHome && isFolder(home) ? sharedHome : home;
			return { name, uid: Number(uid), gid: Number(gid), home: own };
		}
	}
	throw new ConnectError(`invalid username: '${name}'`, Code.Unauthenticated);
}

function resolveCwd(cwd, user) {
	if (cwd === undefined || cwd === "") {
		if (!isFolder(user.home)) {
			throw new ConnectError(`cwd '${user.home}', the home of '${user.name}', does not exist`,
				Code.InvalidArgument);
		}
		return user.home;
	}
	if (cwd.startsWith("~") && cwd.length > 1 && cwd[1] !== "/")
		throw new ConnectError(`cannot expand '${cwd}'`, Code.InvalidArgument);
	const path = resolve(user.home, cwd.startsWith("~") ? "." + cwd.slice(1) : cwd);
	if (!isFolder(path))
		throw new ConnectError(`cwd '${path}' does not exist`, Code.InvalidArgument);
	return path;
}

export class Sandbox {
	running = true;
	paused = false;
	startedAt = Date.now();
	commands = new Map(); // pid -> Command
	retained = new Map(); // pid -> Command, for a while after the end
	responses = new Set(); // open HTTP responses, cut when the sandbox goes
	jsonOnly = false;
	cutTail = false;
	retainMs = 30_000;
	defaultUser = "root";
	#spawner;
	#home;
	#mark;
	#onExpiry;
	#timer;

	constructor({ spawner, home, peerMark, onExpiry, id, templateID, secure, envs, metadata, ttl, version,
		autoPause }) {
		this.id = id ?? "i" + randomBytes(10).toString("hex");
		this.accessToken = secure ? randomBytes(32).toString("hex") : undefined;
		this.templateID = templateID;
		this.envs = envs;
		this.metadata = metadata;
		this.version = version;
		this.autoPause = autoPause;
		this.#spawner = spawner;
		this.#home = home;
		this.#mark = { name: MARK_NAME, value: `${peerMark}/${this.id}` };
		this.#onExpiry = onExpiry;
		if (ttl !== undefined)
			this.setTtl(ttl);
	}

	// From now on, in seconds.
	setTtl(seconds) {
		clearTimeout(this.#timer);
		this.endAt = Date.now() + seconds * 1000;
		this.#timer = setTimeout(() => this.#onExpiry(this), seconds * 1000);
	}

	extendTtl(seconds) {
		if (Date.now() + seconds * 1000 > this.endAt)
			this.setTtl(seconds);
	}

	atLeast(version) {
		return versionNumber(this.version) >= versionNumber(version);
	}

	#environment(user, envs) {
		return {
			PATH,
			HOME: user.home,
			USER: user.name,
			LOGNAME: user.name,
			E2B_SANDBOX: "true",
			E2B_SANDBOX_ID: this.id,
			E2B_TEMPLATE_ID: this.templateID,
			E2B_EVENTS_ADDRESS: "http://127.0.0.1:1",
			...this.envs,
			...envs,
			[this.#mark.name]: this.#mark.value, // not on a real one: kills need it
		};
	}

	// Starts a command, which then runs by itself. Its first listener is there from the start.
	async start({ config, tag, stdin, userName, listener, lifeMs }) {
		const user = findUser(userName ?? this.defaultUser, this.#home);
		const cwd = resolveCwd(config.cwdGiven.value, user);
		const command = new Command({ config, tag, cutTail: this.cutTail });
		try {
			await command.start(this.#spawner, {
				env: this.#environment(user, config.envs),
				cwd,
				stdin: this.atLeast("0.3.0") ? stdin : true,
				user,
			});
		} catch (e) {
			throw new ConnectError(`error starting process: ${e.message}`, Code.InvalidArgument);
		}
		this.commands.set(command.pid, command);
		if (listener)
			command.listeners.add(listener);
		command.lifeMs = lifeMs; // 0: none
		const limit = lifeMs ? setTimeout(() => command.signal(9), lifeMs) : undefined;
		this.#follow(command, limit);
		return command;
	}

	async #follow(command, limit) {
		const pid = command.pid;
		await command.run();
		clearTimeout(limit);
		this.commands.delete(pid);
		if (this.atLeast("0.6.12")) {
			this.retained.set(pid, command);
			setTimeout(() => this.retained.delete(pid), this.retainMs).unref();
		}
		await command.tellEnd();
	}

	// The command of a selector, out of `pool`. By tag as envd 0.6.13 does: lost
	// as soon as another command has a tag too.
	find(selector, pool = this.commands) {
		if (selector?.case === "pid") {
			const found = pool.get(selector.value);
			if (found)
				return found;
			throw new ConnectError(`process with pid ${selector.value} not found`, Code.NotFound);
		}
		if (selector?.case === "tag") {
			const tagged = [...pool.values()].filter((c) => c.tag !== undefined);
			if (tagged.length > 0 && tagged.every((c) => c.tag === selector.value))
				return tagged[0];
			throw new ConnectError(`process with tag ${selector.value} not found`, Code.NotFound);
		}
		throw new ConnectError("invalid selector", Code.InvalidArgument);
	}

	// The pid of every live process of it: commands, their children, and theirs.
	processes() {
		const mark = `${this.#mark.name}=${this.#mark.value}`;
		const found = [];
		for (const name of readdirSync("/proc")) {
			if (!/^\d+$/.test(name))
				continue;
			try {
				if (readFileSync(`/proc/${name}/environ`, "latin1").split("\0").includes(mark))
					found.push(Number(name));
			} catch {
				continue; // it ended while we looked
			}
		}
		return found.filter((pid) => pid > 1 && pid !== process.pid);
	}

	#signalAll(signal) {
		const pids = this.processes();
		for (const pid of pids) {
			try {
				process.kill(pid, signal);
			} catch (e) {
				if (e.code !== "ESRCH")
					throw e;
			}
		}
		return pids.length;
	}

	#cut() {
		for (const response of this.responses)
			response.socket ? response.socket.destroy() : response.stream?.destroy();
	}

	pause() {
		this.paused = true;
		clearTimeout(this.#timer);
		this.#signalAll("SIGSTOP");
		this.#cut();
	}

	resume(ttl) {
		this.paused = false;
		this.setTtl(ttl);
		this.#signalAll("SIGCONT");
	}

	// Ends it as a VM ends: at once, with everything that runs in it.
	destroy() {
		this.running = false;
		clearTimeout(this.#timer);
		while (this.#signalAll("SIGKILL"))
			;
		this.#cut();
	}
}
