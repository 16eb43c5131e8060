// Lines, bars and points over time.

import { axis, plot, seriesItems, widthOf, withGaps, withLegend } from "../chart.js";
import { cssVariable, toCss, withAlpha } from "../color.js";
import { colorOf, display, isHidden, reduced, thresholdsOf } from "../field.js";

export const colorMode = "palette-classic";

/** Draws series that have a field of time and one of numbers each. */
export function draw(room, { frames, options, step, ...shared }) {
  const series = frames.flatMap(({ fields }) => {
    const time = fields.find(({ type }) => type === "time");
    return fields
      .filter((field) => field.type === "number" && !isHidden(field))
      .map((field) => ({ time, field, custom: field.config.custom }));
  });
  const fields = series.map(({ field }) => field);
  const colors = fields.map((field) => colorOf(field, reduced(field, "lastNotNull")));
  const plotRoom = withLegend(room, options.legend, seriesItems(fields, colors, options.legend));

  const joined = uPlot.join(
    series.map(({ time, field, custom }) => {
      const gap = custom.spanNulls === true ? undefined : custom.insertNulls || step;
      return withGaps(time.values, field.values, gap);
    }),
    series.map(() => [1, 1]),
  );
  const [scales, axes, scaleOf] = scalesOf(series, joined);
  const { stacked, bands } = stack(series, joined.slice(1), colors, scaleOf);
  plot(
    plotRoom,
    shared,
    {
      scales,
      axes,
      bands,
      series: [
        {},
        ...series.map(({ custom }, at) => ({ scale: scaleOf[at], ...styleOf(custom, colors[at]) })),
      ],
      hooks: { drawClear: [(chart) => drawThresholds(chart, series, scaleOf)] },
    },
    [joined[0], ...stacked],
  );
}

// One for each unit and side; the second unit's axis is on the right.
function scalesOf(series, joined) {
  const [scales, axes] = [{}, []];
  const scaleOf = series.map(({ field, custom }) => {
    const { unit = "none", min, max } = field.config;
    const { axisPlacement = "auto", scaleDistribution } = custom;
    const key = [unit, axisPlacement === "auto" ? "" : axisPlacement, min, max].join("/");
    if (scales[key]) return key;
    const isLogarithmic = scaleDistribution?.type === "log";
    scales[key] = {
      range: (_chart, least, most) => {
        if (custom.stacking?.mode === "percent") return [least < 0 ? -1 : 0, most > 0 ? 1 : 0];
        return rangeOf(least, most, field.config);
      },
      ...(isLogarithmic && { distr: 3, log: scaleDistribution.log ?? 2, range: undefined }),
    };
    const isRight = axisPlacement === "right" || (axisPlacement === "auto" && axes.length > 0);
    axes.push({
      ...axis(),
      scale: key,
      show: axisPlacement !== "hidden",
      side: isRight ? 1 : 3,
      grid: { ...axis().grid, show: axes.length === 0 },
      space: 28,
      size: (_chart, texts) => (texts ? widthOf(texts) : 40),
      label: custom.axisLabel || undefined,
      labelSize: 18,
      labelFont: axis().font,
      values: (_chart, splits) => {
        const plain = { ...field, config: { ...field.config, mappings: [] } };
        return splits.map((split) => (split === null ? "" : display(plain, split).text));
      },
    });
    return key;
  });
  if (axes.length === 0) axes.push({ ...axis(), show: joined.length > 1 });
  return [scales, axes, scaleOf];
}

function rangeOf(least, most, { min, max, custom }) {
  const soft = (bound) => ({ soft: bound ?? 0, mode: bound === undefined ? 3 : 1 });
  const [from, to] = uPlot.rangeNum(least ?? 0, most ?? 1, {
    min: { pad: 0.1, hard: min ?? -Infinity, ...soft(custom.axisSoftMin) },
    max: { pad: 0.1, hard: max ?? Infinity, ...soft(custom.axisSoftMax) },
  });
  return [min ?? from, max ?? to];
}

// Values on top of those before them in their group, and the bands between. Where another one of its
// group has a value, a series without one adds nothing to it.
function stack(series, values, colors, scaleOf) {
  const stacked = [...values];
  const bands = [];
  const groups = new Map();
  series.forEach(({ custom }, at) => {
    const { mode = "none", group = "A" } = custom.stacking ?? {};
    if (mode === "none") return;
    const key = [mode, group, scaleOf[at], custom.drawStyle, custom.lineInterpolation].join("|");
    groups.set(key, { mode, members: [...(groups.get(key)?.members ?? []), at] });
  });
  for (const { mode, members } of groups.values()) {
    const valuesAt = (row) => members.map((at) => values[at][row] ?? null);
    const totals = values[members[0]].map((_, row) => {
      const there = valuesAt(row).filter((value) => value !== null);
      return there.length > 0 ? there.reduce((sum, value) => sum + value, 0) : null;
    });
    let below = totals.map(() => 0);
    members.forEach((at, place) => {
      const sums = below.map((sum, row) => sum + (values[at][row] ?? 0));
      stacked[at] = sums.map((sum, row) => {
        if (totals[row] === null) return values[at][row];
        return mode === "percent" ? sum / totals[row] || 0 : sum;
      });
      const { fillOpacity = 0 } = series[at].custom;
      if (place > 0 && fillOpacity > 0) {
        const fill = withAlpha(colors[at], fillOpacity / 100);
        bands.push({ series: [at + 1, members[place - 1] + 1], fill });
      }
      below = sums;
    });
  }
  return { stacked, bands };
}

const DASHES = { dash: [10, 10], dot: [0, 10] };

function styleOf(custom, color) {
  const { drawStyle = "line", lineInterpolation = "linear", lineWidth = 1 } = custom;
  const { fillOpacity = 0, lineStyle, pointSize = 5, showPoints = "auto" } = custom;
  const paths = {
    linear: uPlot.paths.linear(),
    smooth: uPlot.paths.spline(),
    stepAfter: uPlot.paths.stepped({ align: 1 }),
    stepBefore: uPlot.paths.stepped({ align: -1 }),
  };
  const isBars = drawStyle === "bars";
  const isDotted = lineStyle?.fill === "dot";
  return {
    stroke: color,
    width: drawStyle === "points" ? 0 : lineWidth,
    fill: fillOpacity > 0 ? withAlpha(color, fillOpacity / 100) : undefined,
    dash: DASHES[lineStyle?.fill] ? (lineStyle.dash ?? DASHES[lineStyle.fill]) : undefined,
    cap: isDotted ? "round" : "butt",
    spanGaps: custom.spanNulls === true,
    paths: isBars ? uPlot.paths.bars({ size: [0.9, 40] }) : paths[lineInterpolation],
    points: {
      size: pointSize,
      fill: color,
      stroke: color,
      // A point alone would not be seen as a line.
      ...(drawStyle === "points" || showPoints === "always" ? { show: true } : {}),
      ...(isBars || (showPoints === "never" && drawStyle !== "points") ? { show: false } : {}),
    },
  };
}

function drawThresholds(chart, series, scaleOf) {
  const drawn = new Set();
  series.forEach(({ field, custom }, at) => {
    const style = custom.thresholdsStyle?.mode ?? "off";
    if (style === "off" || style === "series" || drawn.has(scaleOf[at])) return;
    drawn.add(scaleOf[at]);
    const { ctx, bbox } = chart;
    const { steps } = thresholdsOf(field);
    const bottom = bbox.top + bbox.height;
    const place = (value) => {
      if (value === -Infinity) return bottom;
      return Math.min(Math.max(chart.valToPos(value, scaleOf[at], true), bbox.top), bottom);
    };
    ctx.save();
    steps.forEach(({ color, value }, number) => {
      const y = place(value);
      const above = steps[number + 1] ? place(steps[number + 1].value) : bbox.top;
      if (style.includes("area")) {
        ctx.fillStyle = withAlpha(color, 0.1);
        ctx.fillRect(bbox.left, above, bbox.width, y - above);
      }
      if (style !== "area" && value !== -Infinity && y > bbox.top && y < bottom) {
        ctx.strokeStyle = color === "transparent" ? cssVariable("--grid") : toCss(color);
        ctx.lineWidth = 2;
        ctx.setLineDash(style.startsWith("dashed") ? [10, 10] : []);
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
      }
    });
    ctx.restore();
  });
}
