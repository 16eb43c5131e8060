// Holds dashboards against the types in dashboard.ts: each file's text is taken as a typed constant,
// in memory, so that a complaint names the line of the file itself. Fails on any complaint.
//
//   node types.mjs DASHBOARD.json...

import { readFileSync } from "node:fs";
import { relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import ts from "typescript";

const here = fileURLToPath(new URL("./", import.meta.url));
const config = ts.readConfigFile(resolve(here, "tsconfig.json"), ts.sys.readFile).config;
const { options, fileNames } = ts.parseJsonConfigFileContent(config, ts.sys, here);

const files = process.argv.slice(2).map((file) => resolve(file));
if (files.length === 0) throw new Error("no dashboards are named");
const module = (file) => `${file}.ts`;
const texts = new Map(files.map((file) => [module(file), typed(readFileSync(file, "utf8"))]));

// Before the first line's end, so that lines keep their numbers.
function typed(json) {
  const types = JSON.stringify(resolve(here, "dashboard.js"));
  return `import type { Dashboard } from ${types}; export const dashboard: Dashboard = ${json}`;
}

const host = ts.createCompilerHost(options);
const { fileExists, getSourceFile, readFile } = host;
host.fileExists = (name) => texts.has(name) || fileExists(name);
host.readFile = (name) => texts.get(name) ?? readFile(name);
host.getSourceFile = (name, language, ...more) =>
  texts.has(name)
    ? ts.createSourceFile(name, texts.get(name), language)
    : getSourceFile(name, language, ...more);

const program = ts.createProgram([...fileNames, ...texts.keys()], options, host);
const complaints = ts.getPreEmitDiagnostics(program);
for (const { file, start, messageText } of complaints) {
  const text = ts.flattenDiagnosticMessageText(messageText, "\n");
  if (!file) {
    console.error(text);
    continue;
  }
  const line = file.getLineAndCharacterOfPosition(start).line + 1;
  const name = relative(process.cwd(), file.fileName).replace(/\.json\.ts$/, ".json");
  console.error(`${name}:${line}: ${text}`);
}
process.exitCode = complaints.length > 0 ? 1 : 0;
