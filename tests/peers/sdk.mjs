// Drives the test envd with the real e2b SDK: sdk.mjs CHECK. A check that fails throws.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import {
	CommandExitError, NotFoundError, RateLimitError, Sandbox, SandboxNotFoundError, TimeoutError,
} from "e2b";

const failure = (promise) => promise.then(
	(value) => assert.fail(`succeeded with ${JSON.stringify(value)}`), (e) => e);

async function inSandbox(check) {
	const sandbox = await Sandbox.create({ timeoutMs: 60_000 });
	try {
		await check(sandbox, sandbox.commands);
	} finally {
		await sandbox.kill();
	}
}

const CHECKS = {
	run: () => inSandbox(async (sandbox, commands) => {
		const result = await commands.run("echo out; echo err >&2; echo $A; pwd",
			{ envs: { A: "a b" }, cwd: "/tmp" });
		assert.deepEqual([result.exitCode, result.stdout, result.stderr],
			[0, "out\na b\n/tmp\n", "err\n"]);
	}),

	fails: () => inSandbox(async (sandbox, commands) => {
		const e = await failure(commands.run("echo some; exit 3"));
		assert(e instanceof CommandExitError);
		assert.deepEqual([e.exitCode, e.stdout, e.error], [3, "some\n", "exit status 3"]);
	}),

	unicode: () => inSandbox(async (sandbox, commands) => {
		const { stdout } = await commands.run("printf '\\342'; sleep .1; printf '\\200\\224'");
		assert.equal(stdout, "\u2014");
	}),

	background: () => inSandbox(async (sandbox, commands) => {
		const heard = [];
		const script = "echo one; read go; echo two";
		const handle = await commands.run(script,
			{ background: true, stdin: true, onStdout: (text) => heard.push(text) });
		assert.equal((await commands.list()).find((c) => c.pid === handle.pid).args.at(-1), script);
		await commands.sendStdin(handle.pid, "go\n");
		await handle.wait();
		assert.deepEqual(heard, ["one\n", "two\n"]);
		assert.deepEqual(await commands.list(), []);
	}),

	stdin: () => inSandbox(async (sandbox, commands) => {
		const handle = await commands.run("wc -c", { background: true, stdin: true });
		await commands.sendStdin(handle.pid, "hello ");
		await commands.sendStdin(handle.pid, "there");
		await commands.closeStdin(handle.pid);
		assert.equal((await handle.wait()).stdout.trim(), "11");
		assert((await failure(commands.sendStdin(handle.pid, "late"))) instanceof NotFoundError);
	}),

	kill: () => inSandbox(async (sandbox, commands) => {
		const handle = await commands.run("sleep 86399.5", { background: true });
		assert.equal(await commands.kill(handle.pid), true);
		const e = await failure(handle.wait());
		assert.deepEqual([e.exitCode, e.error], [-1, "signal: killed"]);
		assert.equal(await commands.kill(handle.pid), false);
	}),

	connect: () => inSandbox(async (sandbox, commands) => {
		let heard;
		const early = new Promise((resolve) => { heard = resolve; });
		const first = await commands.run("echo early; read x; echo late; exit 5",
			{ background: true, stdin: true, onStdout: heard });
		assert.equal(await early, "early\n");
		await first.disconnect();
		const second = await commands.connect(first.pid);
		await commands.sendStdin(first.pid, "\n");
		const e = await failure(second.wait());
		assert.deepEqual([e.exitCode, e.stdout], [5, "late\n"]);
		const kept = await commands.connect(first.pid); // the end is kept for a while
		assert.equal((await failure(kept.wait())).exitCode, 5);
		assert((await failure(commands.connect(99_999))) instanceof NotFoundError);
	}),

	timeout: () => inSandbox(async (sandbox, commands) => {
		const e = await failure(commands.run("sleep 86399.5", { timeoutMs: 300 }));
		assert(e instanceof TimeoutError);
		for (let i = 0; (await commands.list()).length > 0; i++) {
			assert(i < 50, "the deadline did not kill the command");
			await sleep(100);
		}
	}),

	user: () => inSandbox(async (sandbox, commands) => {
		assert.equal((await commands.run("id -un", { user: "root" })).stdout, "root\n");
		assert.match((await failure(commands.run("true", { user: "no-such-user" }))).message,
			/invalid username: 'no-such-user'/);
		assert.match((await failure(commands.run("true", { cwd: "/no/such" }))).message,
			/cwd '\/no\/such' does not exist/);
	}),

	sandboxes: async () => {
		const made = await Sandbox.create(
			{ timeoutMs: 30_000, metadata: { a: "b" }, envs: { MADE: "yes" } });
		assert.equal((await made.commands.run("echo $MADE $E2B_SANDBOX_ID")).stdout,
			`yes ${made.sandboxId}\n`);
		const info = await made.getInfo();
		assert.deepEqual([info.state, info.metadata], ["running", { a: "b" }]);
		await made.setTimeout(100_000);
		const left = (await made.getInfo()).endAt - Date.now();
		assert(left > 90_000 && left <= 100_000, `${left} ms left`);
		const again = await Sandbox.connect(made.sandboxId);
		assert.equal((await again.commands.run("echo hi")).stdout, "hi\n");
		assert.equal(await made.isRunning(), true);
		assert.equal(await made.kill(), true);
		assert.equal(await made.isRunning(), false);
		assert((await failure(again.commands.run("true"))) instanceof SandboxNotFoundError);
		assert((await failure(Sandbox.connect(made.sandboxId))) instanceof NotFoundError);
	},

	expires: async () => {
		const made = await Sandbox.create({ timeoutMs: 1_000 });
		const e = await failure(made.commands.run("sleep 86399.5"));
		assert(e instanceof TimeoutError, String(e));
		assert.equal(await made.isRunning(), false);
	},

	pauses: () => inSandbox(async (sandbox, commands) => {
		const handle = await commands.run("sleep 1; exit 9", { background: true });
		handle.wait().catch(() => {});
		await sandbox.pause();
		assert.equal((await sandbox.getInfo()).state, "paused");
		await sandbox.connect();
		assert.equal((await failure((await commands.connect(handle.pid)).wait())).exitCode, 9);
	}),

	refused: async () => {
		const e = await failure(Sandbox.create({ apiKey: "e2b_" + "1".repeat(40) }));
		assert.match(e.message, /401|api key/i);
		const limited = await failure(Sandbox.create()); // the test has planned four of 429
		assert(limited instanceof RateLimitError, String(limited));
	},
};

await CHECKS[process.argv[2]]();
