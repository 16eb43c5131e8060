// A text in Markdown, of which headings, lists, links, emphasis and code are known.

import { element } from "../page.js";

export const colorMode = "thresholds";

/** Draws the panel's own text; it asks for no data. */
export function draw(room, { options }) {
  const { content, mode = "markdown" } = options;
  if (mode !== "markdown") throw new Error(`no text of mode ${mode} is known`);
  const text = element("div.markdown");
  text.innerHTML = content
    .trim()
    .split(/\n\s*\n/)
    .map(block)
    .join("");
  room.classList.add("scrolls");
  room.append(text);
}

function block(text) {
  const heading = /^(#{1,4})\s+(.*)$/.exec(text);
  if (heading) return `<h${heading[1].length}>${inline(heading[2])}</h${heading[1].length}>`;
  const lines = text.split("\n");
  if (lines.every((line) => /^\s*[-*]\s/.test(line))) {
    return `<ul>${lines.map((line) => `<li>${inline(line.replace(/^\s*[-*]\s/, ""))}</li>`).join("")}</ul>`;
  }
  return `<p>${inline(text)}</p>`;
}

function inline(text) {
  return text
    .replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign])
    .replace(/`([^`]+)`/g, "<code>$1</code>")
    .replace(/\*\*([^*]+)\*\*/g, "<b>$1</b>")
    .replace(/\[([^\]]+)\]\(([^)]+)\)/g, '<a href="$2">$1</a>');
}
