// Opens pages in Chromium as a test tells it to: one request a line on a Unix socket, one answer a
// line. It ends with its connection, so that no browser outlives the test that asked for it. It
// judges nothing: what a page says, asks for and complains of is handed over as it is.
//
//   node browse.mjs SOCKET DEADLINE_MS

import { createServer } from "node:net";
import { createInterface } from "node:readline";

import { launchChromium } from "./chromium.mjs";

const [socket, deadline] = process.argv.slice(2);
const browser = await launchChromium();
const pages = [];

// Nor one that never came for it.
const unasked = setTimeout(() => process.exit(1), Number(deadline));

const server = createServer(async (connection) => {
  clearTimeout(unasked);
  server.close();
  connection.on("error", () => connection.destroy());
  for await (const line of createInterface({ input: connection })) {
    connection.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
  }
  await browser.close();
});
server.listen(socket);

async function answer({ page, ask, ...arguments_ }) {
  try {
    const value =
      ask === "open" ? await open(arguments_) : await asks[ask](pages[page], arguments_);
    return { value: value ?? null };
  } catch (error) {
    return { error: error.message };
  }
}

async function open({ url, view }) {
  // A context of its own: no page knows what another one stored.
  const context = await browser.newContext({
    viewport: { width: view.width, height: view.height },
    colorScheme: view.scheme,
    reducedMotion: view.reduced_motion ? "reduce" : "no-preference",
    javaScriptEnabled: view.script,
  });
  context.setDefaultTimeout(Number(deadline));
  const page = await context.newPage();
  const opened = { page, protocol: await context.newCDPSession(page), errors: [], requests: [] };
  // What a page's policy refuses comes as an error of the console too.
  page.on("console", (message) => {
    if (message.type() === "error") opened.errors.push(message.text());
  });
  page.on("pageerror", (error) => opened.errors.push(error.message));
  page.on("request", (request) => opened.requests.push(request.url()));
  opened.response = await page.goto(url);
  return pages.push(opened) - 1;
}

const asks = {
  text: ({ page }) => page.innerText("body"),
  evaluate: ({ protocol }, { expression }) => evaluate(protocol, expression),
  accessibility: ({ protocol }) => describeAccessibility(protocol),
  status: ({ response }) => response.status(),
  headers: ({ response }) => response.allHeaders(),
  errors: ({ errors }) => errors,
  requests: ({ requests }) => requests,
  press: ({ page }, { key }) => page.keyboard.press(key),
  click: ({ page }, { selector }) => page.click(selector),
  screenshot: async ({ page }, { path }) => {
    await page.screenshot({ path, fullPage: true });
  },
  resize: ({ page }, { width, height }) => page.setViewportSize({ width, height }),
  reload: async (opened) => {
    opened.response = await opened.page.reload();
  },
  close: ({ page }) => page.context().close(),
};

// By the protocol, not in the page: a policy that forbids `eval` does not concern us.
async function evaluate(protocol, expression) {
  const { result, exceptionDetails } = await protocol.send("Runtime.evaluate", {
    expression,
    awaitPromise: true,
    returnByValue: true,
  });
  if (exceptionDetails) {
    throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  }
  return result.value;
}

// What Chromium tells assistive technology, a line for each thing that has a role.
async function describeAccessibility(protocol) {
  const { nodes } = await protocol.send("Accessibility.getFullAXTree");
  const byId = new Map(nodes.map((node) => [node.nodeId, node]));
  const lines = [];
  const describe = (node, depth) => {
    const role = node.role?.value;
    // Boxes of layout repeat the text of the node above them.
    if (role === "InlineTextBox") return;
    const shown = !node.ignored && role !== "none" && role !== "generic";
    if (shown) {
      const name = node.name?.value ? ` ${JSON.stringify(node.name.value)}` : "";
      const told = (node.properties ?? []).filter(({ name }) => TOLD.has(name));
      const properties = told.map(({ name, value }) => ` ${name}=${value.value}`);
      lines.push(`${"  ".repeat(depth)}${role}${name}${properties.join("")}`);
    }
    for (const child of node.childIds ?? []) {
      if (byId.has(child)) describe(byId.get(child), depth + (shown ? 1 : 0));
    }
  };
  describe(nodes[0], 0);
  return lines.join("\n");
}

const TOLD = new Set(["level", "expanded", "checked", "selected", "disabled", "live", "busy"]);
