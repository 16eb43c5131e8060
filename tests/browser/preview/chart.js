// What all panels with an axis of time have in common: the plot with its axes and annotations, and
// the legend below or beside it.

import { cssVariable, toCss, withAlpha } from "./color.js";
import { display, nameOf, reduced, reducerName } from "./field.js";
import { element, font, styled, textWidth } from "./page.js";

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

/** A plot in the room that a panel leaves; `options` and `data` as uPlot wants them. */
export function plot(room, { range, annotations }, options, data) {
  const [from, to] = range;
  const chart = new uPlot(
    {
      width: room.clientWidth,
      height: room.clientHeight,
      ms: 1,
      legend: { show: false },
      cursor: { show: false },
      padding: [8, 16, 4, null],
      ...options,
      scales: { x: { time: true, range: () => [from, to] }, ...options.scales },
      axes: [{ ...axis(), size: 24, space: 70, values: timeTexts }, ...options.axes],
      hooks: { ...options.hooks, draw: [...(options.hooks?.draw ?? []), annotate] },
    },
    data,
    room,
  );

  function annotate(chart) {
    const { ctx, bbox } = chart;
    for (const { color, spans } of annotations) {
      for (const [begin, end] of spans) {
        const [left, right] = [begin, end].map((moment) => chart.valToPos(moment, "x", true));
        if (right < bbox.left || left > bbox.left + bbox.width) continue;
        ctx.save();
        ctx.fillStyle = withAlpha(color, 0.12);
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
        ctx.strokeStyle = toCss(color);
        ctx.setLineDash([4, 4]);
        for (const at of left === right ? [left] : [left, right]) {
          ctx.beginPath();
          ctx.moveTo(at, bbox.top);
          ctx.lineTo(at, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.fillStyle = toCss(color);
        ctx.fillRect(left - 3, bbox.top + bbox.height, Math.max(right - left, 0) + 6, 4);
        ctx.restore();
      }
    }
  }
  return chart;
}

/** An axis in the page's colours. */
export const axis = () => ({
  font: font(11),
  stroke: cssVariable("--text"),
  grid: { stroke: cssVariable("--grid"), width: 1 },
  ticks: { stroke: cssVariable("--grid"), width: 1, size: 4 },
  gap: 4,
});

/** The room that the longest of an axis' texts needs. */
export const widthOf = (texts) => Math.max(20, ...texts.map((text) => textWidth(text, 11))) + 12;

function timeTexts(_chart, moments, _axis, _space, step) {
  return moments.map((moment) => {
    const text = new Date(moment).toISOString();
    if (step >= DAY) return text.slice(5, 10);
    return step < MINUTE ? text.slice(11, 19) : text.slice(11, 16);
  });
}

/** Points, and empty ones at each step where there are none between two, so that a gap is seen. */
export function withGaps(times, values, step) {
  const [ats, shown] = [[], []];
  times.forEach((time, at) => {
    for (let empty = times[at - 1] + step; step && empty < time - step / 2; empty += step) {
      ats.push(empty);
      shown.push(null);
    }
    ats.push(time);
    shown.push(Number.isFinite(values[at]) ? values[at] : null);
  });
  return [ats, shown];
}

/** A panel's room, divided into one for the plot and a legend of these items. */
export function withLegend(room, legend, items) {
  const plotRoom = element("div.plot");
  const isBeside = legend?.placement === "right";
  room.classList.add("charted", isBeside ? "beside" : "below");
  room.append(plotRoom);
  const isShown = legend && legend.showLegend !== false && legend.displayMode !== "hidden";
  if (isShown && items.length > 0) room.append(element("div.legend", ...items));
  return plotRoom;
}

/** Legend items for series: what they are called, and what they come to. */
export function seriesItems(fields, colors, { displayMode = "list", calcs = [], ...legend } = {}) {
  const shown = fields
    .map((field, at) => ({
      field,
      color: colors[at],
      numbers: calcs.map((id) => reduced(field, id)),
    }))
    .filter(({ field }) => !field.config.custom?.hideFrom?.legend);
  const sorter = calcs.findIndex((id) => reducerName(id) === legend.sortBy);
  if (sorter >= 0) {
    shown.sort((one, other) => one.numbers[sorter] - other.numbers[sorter]);
    if (legend.sortDesc) shown.reverse();
  }
  const name = ({ field, color }) => [swatch(color), nameOf(field)];
  const texts = ({ field, numbers }) => numbers.map((number) => display(field, number).text);
  if (displayMode !== "table") {
    return shown.map((one) => {
      const numbers = texts(one).map((text, at) => `  ${reducerName(calcs[at])}: ${text}`);
      return element("span.item", ...name(one), ...numbers);
    });
  }
  const cells = (kind, texts) => texts.map((text) => element(`${kind}.number`, text));
  const rows = shown.map((one) => {
    return element("tr", element("td", ...name(one)), ...cells("td", texts(one)));
  });
  const head = element("tr", element("th", "Name"));
  head.append(...cells("th", calcs.map(reducerName)));
  return [element("table", head, ...rows)];
}

/** The little line of a legend's item. */
export const swatch = (color) => styled(element("i.swatch"), { background: color });
