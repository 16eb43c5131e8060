// Rows and columns.

import { mixed, readableOn, toCss, withAlpha } from "../color.js";
import { display, isHidden, nameOf, shareOf } from "../field.js";
import { element, styled } from "../page.js";
import { compare } from "../transform.js";

export const colorMode = "thresholds";

/** Draws the first frame, as the panel does before somebody chooses another one. */
export function draw(room, { frames, options }) {
  const fields = frames[0].fields.filter((field) => !isHidden(field));
  const { sortBy = [], showHeader = true, cellHeight = "sm" } = options;
  const rows = fields[0].values.map((_, row) => row);
  // The last one first, since sorting keeps what it finds equal.
  for (const { displayName, desc } of [...sortBy].reverse()) {
    const field = fields.find((field) => nameOf(field) === displayName);
    if (!field) throw new Error(`no column ${displayName} to sort by`);
    rows.sort((one, other) => (desc ? -1 : 1) * compare(field.values[one], field.values[other]));
  }
  const columns = fields.map(({ config }) => {
    const { width, minWidth = 150 } = config.custom;
    return width ? { width } : { minWidth };
  });
  const fixed = columns.reduce((sum, { width = 0 }) => sum + width, 0);
  const share = (room.clientWidth - fixed) / columns.filter(({ width }) => !width).length;
  const widths = columns.map(({ width, minWidth }) => width ?? Math.max(minWidth, share));
  const head = element("tr", ...fields.map((field) => cell("th", field, nameOf(field))));
  const body = rows.map((row) => element("tr", ...fields.map((field) => valueCell(field, row))));
  const cols = widths.map((width) => styled(element("col"), { width: `${width}px` }));
  const whole = { width: `${widths.reduce((sum, width) => sum + width, 0)}px` };
  const table = styled(element(`table.cells.${cellHeight}`, element("colgroup", ...cols)), whole);
  if (showHeader) table.append(head);
  table.append(...body);
  room.classList.add("scrolls");
  room.append(table);
}

function cell(kind, field, ...children) {
  const { align = "auto" } = field.config.custom;
  const isRight = align === "right" || (align === "auto" && field.type === "number");
  return element(`${kind}.${isRight ? "number" : align}`, ...children);
}

function valueCell(field, row) {
  const value = field.values[row];
  const { text, color, number } = display(field, value);
  const { type = "auto", mode } = field.config.custom.cellOptions ?? {};
  const made = cell("td", field, text);
  if (field.config.links?.length > 0) made.classList.add("linked");
  switch (type) {
    case "auto":
      break;
    case "color-text":
      made.style.color = color;
      break;
    case "color-background": {
      const background = mode === "gradient" ? mixed([color, "#000000"], 0.15) : color;
      Object.assign(made.style, { background, color: readableOn(background) });
      break;
    }
    case "gauge": {
      const share = 100 * Math.min(Math.max(shareOf(field, number), 0), 1);
      const bar = withAlpha(color, mode === "basic" ? 0.4 : 0.8);
      const rest = toCss("transparent");
      made.style.background = `linear-gradient(to right, ${bar} ${share}%, ${rest} ${share}%)`;
      break;
    }
    default:
      throw new Error(`no cell of type ${type} is known`);
  }
  return made;
}
