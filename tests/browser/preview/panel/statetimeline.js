// Bands of states over time, a row for each series.

import { axis, plot, swatch, widthOf, withLegend } from "../chart.js";
import { readableOn, toCss, withAlpha } from "../color.js";
import { display, isHidden, nameOf, thresholdsOf } from "../field.js";
import { element, font, textWidth } from "../page.js";

export const colorMode = "continuous-GrYlRd";

/** Draws one row a field. */
export function draw(room, { frames, options, step, ...shared }) {
  const all = frames.flatMap(({ fields }) => {
    const time = fields.find(({ type }) => type === "time");
    return fields
      .filter((field) => field !== time && !isHidden(field))
      .map((field) => ({
        field,
        bands: bandsOf(time.values, field, step, shared.range[1], options),
      }));
  });
  const { perPage = 20 } = options;
  const rows = perPage > 0 ? all.slice(0, perPage) : all;
  const items = legendItems(rows);
  if (rows.length < all.length) {
    items.push(element("span.item", `1 to ${rows.length} of ${all.length} rows`));
  }
  const plotRoom = withLegend(room, options.legend, items);
  const names = rows.map(({ field }) => nameOf(field));
  const places = rows.map((_, row) => rows.length - row - 0.5);
  plot(
    plotRoom,
    shared,
    {
      scales: { y: { range: () => [0, rows.length] } },
      series: [{}, { show: false }],
      axes: [
        {
          ...axis(),
          scale: "y",
          size: Math.min(widthOf(names), plotRoom.clientWidth / 3),
          splits: () => places,
          filter: (_chart, splits) => splits,
          values: () => names.map((name) => shortened(name, plotRoom.clientWidth / 3 - 12, 11)),
          grid: { show: false },
          ticks: { show: false },
        },
      ],
      hooks: { draw: [(chart) => drawRows(chart, rows, options)] },
    },
    [shared.range, [null, null]],
  );
}

// A value lasts to the next one, and a step where there is none.
function bandsOf(times, field, step, end, { mergeValues = true }) {
  const bands = [];
  const span = field.config.custom.spanNulls === true ? Infinity : 1.5 * (step ?? Infinity);
  times.forEach((from, at) => {
    const value = field.values[at];
    if (value === null || value === undefined || Number.isNaN(value)) return;
    const next = times[at + 1] ?? end;
    const to = next - from > span ? from + step : next;
    const last = bands.at(-1);
    if (mergeValues && last && last.to === from && last.value === value) last.to = to;
    else bands.push({ from, to, value, ...display(field, value) });
  });
  return bands;
}

function drawRows(chart, rows, { rowHeight = 0.9, showValue = "auto", alignValue = "left" }) {
  const { ctx, bbox } = chart;
  const height = (bbox.height / rows.length) * rowHeight;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = font(11);
  ctx.textBaseline = "middle";
  rows.forEach(({ field, bands }, row) => {
    const { fillOpacity = 70, lineWidth = 0 } = field.config.custom;
    const middle = chart.valToPos(rows.length - row - 0.5, "y", true);
    for (const { from, to, text, color } of bands) {
      const left = Math.max(chart.valToPos(from, "x", true), bbox.left);
      const right = Math.min(chart.valToPos(to, "x", true), bbox.left + bbox.width);
      const width = right - left;
      const fill = withAlpha(color, fillOpacity / 100);
      ctx.fillStyle = fill;
      ctx.fillRect(left, middle - height / 2, width, height);
      if (lineWidth > 0) {
        ctx.strokeStyle = toCss(color);
        ctx.lineWidth = lineWidth;
        ctx.strokeRect(left, middle - height / 2, width, height);
      }
      const fits = textWidth(text, 11) + 8 < width && height >= 12;
      if (showValue === "never" || (showValue === "auto" && !fits)) continue;
      ctx.fillStyle = readableOn(fill);
      ctx.textAlign = alignValue;
      const x = { left: left + 4, center: left + width / 2, right: right - 4 }[alignValue];
      ctx.fillText(text, x, middle);
    }
  });
  ctx.restore();
}

// What the colours mean: the mapped values that are there, or the steps of the thresholds.
function legendItems(rows) {
  const meanings = new Map();
  for (const { field, bands } of rows) {
    const mapped = bands.filter(({ isMapped }) => isMapped);
    for (const { text, color } of mapped) meanings.set(text, color);
    if (field.config.color.mode !== "thresholds" || mapped.length > 0) continue;
    const { steps } = thresholdsOf(field);
    if (steps.length < 2) continue;
    for (const { color, value } of steps) {
      const bound = value === -Infinity ? steps[1].value : value;
      const text = display({ ...field, config: { ...field.config, mappings: [] } }, bound).text;
      meanings.set(
        `${value === -Infinity ? "<" : ""} ${text}${value === -Infinity ? "" : "+"}`,
        toCss(color),
      );
    }
  }
  return [...meanings].map(([text, color]) => element("span.item", swatch(color), text));
}

function shortened(text, width, size) {
  if (textWidth(text, size) <= width) return text;
  let kept = text;
  while (kept && textWidth(`${kept}…`, size) > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}
