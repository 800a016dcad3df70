// The process service, described by the schema that the backend is compiled from. The real
// e2b SDK brings a schema of its own, so its tests here show that ours is the same.

import "./base64.mjs";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

const FOLDER = fileURLToPath(new URL("../../backend", import.meta.url));

function readSchema() {
	const place = mkdtempSync(join(tmpdir(), "e2b-peer-"));
	try {
		const set = join(place, "schema");
		execFileSync("protoc-c", ["-I", FOLDER, `--descriptor_set_out=${set}`,
			join(FOLDER, "e2b_process.proto")]);
		return createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(set)));
	} finally {
		rmSync(place, { recursive: true });
	}
}

export const ProcessService = readSchema().getService("process.Process");
