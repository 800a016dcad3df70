// Small HTTP answers, as the proxies and the control plane give them.

export function answer(res, status, body, headers = {}) {
	if (body === undefined) {
		res.writeHead(status, headers);
		res.end();
		return;
	}
	const text = typeof body === "string" ? body : JSON.stringify(body);
	const type = typeof body === "string" ? "text/plain; charset=utf-8" :
		"application/json; charset=utf-8";
	res.writeHead(status, { "content-type": type, ...headers });
	res.end(text);
}

// The numeric-code error of everybody but the RPC handlers.
export const refuse = (res, code, message, headers) =>
	answer(res, code, { code, message }, headers);

export async function readBody(req) {
	const parts = [];
	for await (const part of req)
		parts.push(part);
	return Buffer.concat(parts);
}
