// The work that scripts/bench measures on e2b:, done with E2B's own SDK instead of a mount.
// Every command prints one number. The environment says where (E2B_API_KEY, E2B_API_URL,
// E2B_SANDBOX_URL) and E2B_SANDBOX_ID which sandbox.
//
//     e2b_sdk.mjs stdout BYTES     MB/s of the output of one command
//     e2b_sdk.mjs stdin BYTES      MB/s of the input of one command, in pieces of 64 KiB
//     e2b_sdk.mjs exec ROUNDS      median microseconds of commands.run("true")
//     e2b_sdk.mjs echo ROUNDS      median microseconds of a line to cat and back
//     e2b_sdk.mjs many COUNT       seconds until COUNT commands started at once have ended

import { createRequire } from "node:module";

const { Sandbox } = createRequire(new URL("../../tests/peers/package.json", import.meta.url))("e2b");

const { commands } = await Sandbox.connect(process.env.E2B_SANDBOX_ID);
const NO_LIMIT = { timeoutMs: 0, requestTimeoutMs: 600_000 };

const seconds = (since) => (performance.now() - since) / 1000;

async function medianMicroseconds(rounds, action) {
	const times = [];
	for (let i = 0; i < rounds; i++) {
		const since = performance.now();
		await action();
		times.push(seconds(since) * 1e6);
	}
	return times.sort((a, b) => a - b)[rounds >> 1];
}

async function stdout(bytes) {
	let got = 0;
	const since = performance.now();
	await commands.run(`exec head -c ${bytes} /dev/zero`,
		{ ...NO_LIMIT, onStdout: (text) => { got += text.length; } });
	if (got !== bytes)
		throw new Error(`${got} bytes of ${bytes}`);
	return bytes / seconds(since) / 1e6;
}

async function stdin(bytes) {
	const piece = new Uint8Array(64 << 10);
	const command = await commands.run("exec wc -c", { ...NO_LIMIT, background: true, stdin: true });
	const since = performance.now();
	for (let sent = 0; sent < bytes; sent += piece.length)
		await commands.sendStdin(command.pid, piece.subarray(0, bytes - sent), NO_LIMIT);
	await commands.closeStdin(command.pid);
	const { stdout: counted } = await command.wait();
	if (Number(counted) !== bytes)
		throw new Error(`${counted} bytes of ${bytes}`);
	return bytes / seconds(since) / 1e6;
}

async function exec(rounds) {
	await commands.run("true");
	return medianMicroseconds(rounds, () => commands.run("true"));
}

async function echo(rounds) {
	let heard;
	const command = await commands.run("exec cat",
		{ ...NO_LIMIT, background: true, stdin: true, onStdout: () => heard() });
	const median = await medianMicroseconds(rounds, async () => {
		const back = new Promise((resolve) => { heard = resolve; });
		await commands.sendStdin(command.pid, "a line\n");
		await back;
	});
	await command.kill();
	return median;
}

async function many(count) {
	const since = performance.now();
	await Promise.all(Array.from({ length: count }, () => commands.run("true", NO_LIMIT)));
	return seconds(since);
}

const WORK = { stdout, stdin, exec, echo, many };
const [name, amount] = process.argv.slice(2);
console.log(await WORK[name](Number(amount)));
