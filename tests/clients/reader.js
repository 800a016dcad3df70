// Reads a file to its end the way its first argument says and writes what it got to stdout.
// Modes: sync, callback, promise, stream, lines.
'use strict';
const fs = require('fs');
const readline = require('readline');

const [mode, path] = process.argv.slice(2);

async function read() {
	switch (mode) {
	case 'sync':
		return fs.readFileSync(path);
	case 'callback':
		return new Promise((resolve, reject) =>
			fs.readFile(path, (err, data) => (err ? reject(err) : resolve(data))));
	case 'promise':
		return fs.promises.readFile(path);
	case 'stream': {
		const parts = [];
		for await (const part of fs.createReadStream(path))
			parts.push(part);
		return Buffer.concat(parts);
	}
	case 'lines': {
		let text = '';
		for await (const line of readline.createInterface({input: fs.createReadStream(path)}))
			text += line + '\n';
		return Buffer.from(text);
	}
	}
	throw new Error(`no mode ${mode}`);
}

read().then(
	data => fs.writeSync(1, data, 0, data.length) === data.length || process.exit(3),
	err => {
		console.error(err);
		process.exit(1);
	});
