// Starts Chromium: the one that CHROMIUM names, or the first on the PATH. Nothing here ever downloads
// one. It knows nothing of the pages that are opened in it.

import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

import { chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

// It asks the world for nothing: no updates, no experiments, no lists of bad sites.
const QUIET = [
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-gpu",
  "--disable-quic",
  "--disable-sync",
  "--no-first-run",
];

/** A browser without windows, whose profile is a folder in TMPDIR that goes away when it closes. */
export function launchChromium() {
  return chromium.launch({
    executablePath: findChromium(),
    args: QUIET,
    // It refuses to work for root and in many containers, and only pages of ours are opened.
    chromiumSandbox: false,
    // A busy machine takes its time.
    timeout: 60_000,
  });
}

function findChromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const folders = (process.env.PATH ?? "").split(delimiter);
  const programs = folders.flatMap((folder) => NAMES.map((name) => join(folder, name)));
  const found = programs.find(isExecutable);
  if (!found) throw new Error(`none of ${NAMES.join(", ")} is on the PATH: set CHROMIUM`);
  return found;
}

function isExecutable(program) {
  try {
    accessSync(program, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
