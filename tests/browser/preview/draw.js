// A dashboard as a page: its rows and panels on Grafana's grid, each drawn from the answers to its
// queries. `drawDashboard` tells of each panel what became of it; one that cannot be drawn says why in
// its place, and the others are drawn all the same.

import { stepOf, framesOf } from "./frame.js";
import { configured } from "./field.js";
import { element, styled } from "./page.js";
import * as heatmap from "./panel/heatmap.js";
import * as single from "./panel/single.js";
import * as statetimeline from "./panel/statetimeline.js";
import * as table from "./panel/table.js";
import * as text from "./panel/text.js";
import * as timeseries from "./panel/timeseries.js";
import { transformed } from "./transform.js";
import { setNow } from "./unit.js";

const KINDS = {
  bargauge: { ...single, draw: single.drawBarGauge },
  gauge: { ...single, draw: single.drawGauge },
  heatmap,
  stat: { ...single, draw: single.drawStat },
  "state-timeline": statetimeline,
  table,
  text,
  timeseries,
};

// As in Grafana, in pixels.
const CELL = 30;
const GAP = 8;
const COLUMNS = 24;

/** Draws everything, or without what is in folded rows, and tells what became of each panel. */
export async function drawDashboard(
  { dashboard, from, to, variables, panels, annotations },
  { folded },
) {
  // Texts are measured, so the font has to be there.
  await document.fonts.load("16px Inter Variable");
  setNow(1000 * to);
  document.title = dashboard.title;
  const grid = element("div.grid");
  document.body.append(bar(dashboard, from, to, variables), grid);
  const shared = {
    range: [1000 * from, 1000 * to],
    annotations: spansOf(dashboard, annotations ?? []),
  };
  const answers = new Map(panels.map(({ id, targets }) => [id, targets]));
  const column = (grid.clientWidth - (COLUMNS - 1) * GAP) / COLUMNS;
  const told = [];
  let height = 0;
  for (const { panel, y } of placed(dashboard.panels, folded)) {
    const { x, w, h } = panel.gridPos;
    const styles = {
      left: `${x * (column + GAP)}px`,
      top: `${y * (CELL + GAP)}px`,
      width: `${w * column + (w - 1) * GAP}px`,
      height: `${h * CELL + (h - 1) * GAP}px`,
    };
    height = Math.max(height, (y + h) * (CELL + GAP));
    grid.style.height = `${height}px`;
    const title = substituted(panel.title ?? "", variables);
    if (panel.type === "row") {
      grid.append(
        styled(element("div.row", `${folded && panel.collapsed ? "›" : "⌄"} ${title}`), styles),
      );
      continue;
    }
    const room = element("div.room");
    const frame = styled(element("div.panel", head(panel, title), room), styles);
    frame.classList.toggle("transparent", Boolean(panel.transparent));
    grid.append(frame);
    const outcome = fill(room, panel, answers, shared);
    told.push({ id: panel.id, title, kind: panel.type, ...outcome, text: room.innerText });
  }
  return told;
}

// Rows that are open, or opened here, move down what is below them.
function* placed(panels, folded) {
  let shift = 0;
  const sorted = [...panels].sort((one, other) => one.gridPos.y - other.gridPos.y);
  for (const panel of sorted) {
    const y = panel.gridPos.y + shift;
    yield { panel, y };
    if (panel.type !== "row" || !panel.collapsed || panel.panels.length === 0) continue;
    if (folded) continue;
    const top = Math.min(...panel.panels.map(({ gridPos }) => gridPos.y));
    const ends = panel.panels.map(({ gridPos }) => gridPos.y + gridPos.h - top);
    for (const inner of panel.panels) yield { panel: inner, y: y + 1 + inner.gridPos.y - top };
    shift += Math.max(...ends);
  }
}

function fill(room, panel, answers, shared) {
  let series = 0;
  try {
    const kind = KINDS[panel.type];
    if (!kind) throw new Error(`no panel of type ${panel.type} is known`);
    const frames = framesOf(answers.get(panel.id) ?? []);
    series = frames.length;
    const shaped = transformed(frames, panel.transformations ?? []);
    const isEmpty = shaped.every(({ fields }) => (fields[0]?.values.length ?? 0) === 0);
    if (isEmpty && panel.type !== "text") {
      const { noValue = "No data" } = panel.fieldConfig?.defaults ?? {};
      room.append(element("div.nothing", noValue));
      return { series, drawn: false };
    }
    kind.draw(room, {
      ...shared,
      frames: configured(shaped, panel.fieldConfig, kind.colorMode),
      options: panel.options ?? {},
      step: stepOf(frames),
    });
    return { series, drawn: true };
  } catch (error) {
    room.replaceChildren(element("div.failed", error.message));
    return { series, drawn: false, error: error.message };
  }
}

function head({ description }, title) {
  return element("div.head", title, description ? element("i.info", "i") : "");
}

function bar({ title, links = [], templating }, from, to, variables) {
  const shown = (templating?.list ?? []).filter(({ hide = 0 }) => hide !== 2);
  const pickers = shown.map(({ name, label }) => {
    const value = variables[name] ?? "";
    const text = Array.isArray(value) ? value.join(" + ") : String(value);
    const plain = text === "$__all" ? "All" : text;
    return element("span.picker", element("b", label || name), plain);
  });
  const moment = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 19).replace("T", " ");
  return element(
    "header",
    element("div.top", element("h1", title), `${moment(from)} to ${moment(to)} UTC`),
    element("div.pickers", ...pickers, ...links.map((link) => element("a", link.title))),
  );
}

// `$name` and `${name}`, and with a format, which is of no matter to a title.
function substituted(text, variables) {
  return text.replace(/\$(?:(\w+)|\{(\w+)(?::\w+)?\})/g, (whole, plain, braced) => {
    const value = variables[plain ?? braced];
    return value === undefined ? whole : [value].flat().join(" + ");
  });
}

// Points that are above zero, or moments that are values themselves. Those no more than a step apart
// are taken together.
function spansOf({ annotations: configured }, answers) {
  return answers.map(({ name, data }) => {
    const { iconColor = "blue", useValueForTime } =
      (configured?.list ?? []).find((annotation) => annotation.name === name) ?? {};
    const frames = framesOf([{ refId: name, data }]);
    const step = stepOf(frames) ?? 0;
    const spans = frames.flatMap(({ fields: [time, value] }) => {
      const isTime = useValueForTime === true || useValueForTime === "on";
      const above = (_, at) => value.values[at] > 0;
      const moments = isTime ? value.values : time.values.filter(above);
      return moments.reduce((spans, moment) => {
        const last = spans.at(-1);
        if (last && moment - last[1] <= step) last[1] = moment;
        else spans.push([moment, moment]);
        return spans;
      }, []);
    });
    return { color: iconColor, spans };
  });
}
