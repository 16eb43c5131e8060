// Succeeds if node_modules holds what package-lock.json says, and says on standard error what is
// missing if not. It must run without node_modules.

import { existsSync, readFileSync } from "node:fs";

const here = new URL("./", import.meta.url);
const read = (path) => JSON.parse(readFileSync(new URL(path, here), "utf8"));

function fault() {
  const least = Number(read("package.json").engines.node.match(/\d+/)[0]);
  if (Number.parseInt(process.versions.node, 10) < least) {
    return `node is ${process.versions.node}, and has to be ${least} at least`;
  }
  const npmsOwn = "node_modules/.package-lock.json";
  if (!existsSync(new URL(npmsOwn, here))) return "there is no node_modules";
  const installed = read(npmsOwn).packages;
  for (const [path, { version, integrity }] of Object.entries(read("package-lock.json").packages)) {
    if (path === "") continue;
    if (installed[path]?.integrity !== integrity || !existsSync(new URL(path, here))) {
      return `${path} is not ${version}`;
    }
  }
  return null;
}

const found = fault();
if (found) {
  console.error(`${found}: run npm ci in tests/browser`);
  process.exitCode = 1;
}
