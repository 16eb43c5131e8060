// Draws a dashboard from the answers to its queries, since a test has no Grafana: the same data, names,
// units, colours and places, if not the same pixels. Prints a line of JSON for each panel, and fails
// if one of them could not be drawn.
//
//   node preview.mjs RESULTS.json OUT.png [--light] [--width PIXELS] [--folded]
//
// Folded, rows that are collapsed stay so, and their panels are left out.

import { readFileSync } from "node:fs";
import { extname } from "node:path";
import { parseArgs } from "node:util";

import { launchChromium } from "./chromium.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    folded: { type: "boolean", default: false },
    light: { type: "boolean", default: false },
    width: { type: "string", default: "1600" },
  },
});
const [results, picture] = positionals;
if (!picture) throw new Error("what to draw and where to is not given");

const TYPES = { ".css": "text/css", ".js": "text/javascript", ".woff2": "font/woff2" };
const HOST = "http://preview.invalid";
const PAGE = `<!doctype html>
<html data-theme="${values.light ? "light" : "dark"}">
<meta charset="utf-8">
<link rel="stylesheet" href="/node_modules/@fontsource-variable/inter/index.css">
<link rel="stylesheet" href="/node_modules/uplot/dist/uPlot.min.css">
<link rel="stylesheet" href="/preview/style.css">
<script src="/node_modules/uplot/dist/uPlot.iife.min.js"></script>
<body></body>
</html>`;

const browser = await launchChromium();
try {
  const page = await browser.newPage({
    viewport: { width: Number(values.width), height: 800 },
    timezoneId: "UTC",
    locale: "en-GB",
  });
  // No server and no network: what the page asks for is read from this folder.
  await page.route("**/*", (route) => {
    const { origin, pathname } = new URL(route.request().url());
    if (origin !== HOST) return route.abort();
    if (pathname === "/") return route.fulfill({ body: PAGE, contentType: "text/html" });
    const file = new URL(`.${pathname}`, import.meta.url);
    return route.fulfill({ body: readFileSync(file), contentType: TYPES[extname(pathname)] });
  });
  await page.goto(HOST);
  const told = await page.evaluate(
    async ([results, options]) => {
      return (await import("/preview/draw.js")).drawDashboard(results, options);
    },
    [JSON.parse(readFileSync(results, "utf8")), { folded: values.folded }],
  );
  await page.screenshot({ path: picture, fullPage: true });
  for (const panel of told) console.log(JSON.stringify(panel));
  if (told.some(({ error }) => error)) process.exitCode = 1;
} finally {
  await browser.close();
}
