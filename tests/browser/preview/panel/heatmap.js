// Counts by bucket over time, darker or brighter by how many there are.

import { axis, plot, widthOf, withLegend } from "../chart.js";
import { schemeColor, withAlpha } from "../color.js";
import { display, nameOf } from "../field.js";
import { formatNumber } from "../unit.js";
import { element, styled } from "../page.js";

export const colorMode = "thresholds";

/** Draws the one frame that holds a field for each bucket. */
export function draw(room, { frames, options, step, ...shared }) {
  const [{ fields }] = frames.filter(({ isHeatmap }) => isHeatmap);
  const [time, ...buckets] = fields;
  const { filterValues = {}, cellGap = 1, yAxis = {}, color } = options;
  const isShown = (count) => {
    return (
      count !== null &&
      count > (filterValues.le ?? -Infinity) &&
      count < (filterValues.ge ?? Infinity)
    );
  };
  const counts = buckets.flatMap(({ values }) => values.filter(isShown));
  const least = color.min ?? Math.min(...counts, 0);
  const most = color.max ?? Math.max(...counts);
  const share = (count) => (most > least ? (count - least) / (most - least) : 1);
  const plotRoom = withLegend(room, { showLegend: options.legend?.show }, [
    scaleOf(buckets[0], least, most, (part) => colorAt(color, part)),
  ]);
  // The text stands at the upper bound of its bucket.
  const names = ["", ...buckets.map((bucket) => boundText(nameOf(bucket), yAxis))];
  plot(
    plotRoom,
    shared,
    {
      scales: { y: { range: () => [0, buckets.length] } },
      series: [{}, { show: false }],
      axes: [
        {
          ...axis(),
          scale: "y",
          size: widthOf(names),
          splits: () => names.map((_, at) => at),
          filter: (_chart, splits) => {
            const every = Math.ceil((14 * splits.length) / plotRoom.clientHeight);
            return splits.map((split) => (split % every === 0 ? split : null));
          },
          values: (_chart, splits) => splits.map((split) => (split === null ? "" : names[split])),
        },
      ],
      hooks: { draw: [drawCells] },
    },
    [shared.range, [null, null]],
  );

  function drawCells(chart) {
    const { ctx, bbox } = chart;
    const width = step ?? shared.range[1] - shared.range[0];
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    buckets.forEach(({ values }, row) => {
      const [bottom, top] = [row, row + 1].map((at) => chart.valToPos(at, "y", true));
      values.forEach((count, at) => {
        if (!isShown(count)) return;
        // A column holds what came before its moment.
        const [left, right] = [time.values[at] - width, time.values[at]].map((moment) => {
          return chart.valToPos(moment, "x", true);
        });
        ctx.fillStyle = colorAt(color, share(count));
        const room = [right - left, bottom - top].map((size) => Math.max(size - cellGap, 1));
        ctx.fillRect(left, top, ...room);
      });
    });
    ctx.restore();
  }
}

function colorAt(
  { mode = "scheme", scheme = "Oranges", fill, scale, exponent = 0.5, reverse },
  share,
) {
  const part = scale === "linear" ? share : share ** exponent;
  if (mode === "opacity") return withAlpha(fill, part);
  return schemeColor(scheme, reverse ? 1 - part : part);
}

function boundText(name, { unit = "short", decimals }) {
  const bound = name === "+Inf" ? Infinity : Number(name);
  if (bound === Infinity) return "+Inf";
  return Number.isNaN(bound) ? name : formatNumber(bound, unit, decimals);
}

function scaleOf(bucket, least, most, colorAt) {
  const stops = Array.from({ length: 11 }, (_, at) => colorAt(at / 10));
  const bar = styled(element("i.scale"), {
    background: `linear-gradient(to right, ${stops.join(", ")})`,
  });
  const text = (count) => (Number.isFinite(count) ? display(bucket, count).text : "");
  return element("span.item", text(least), bar, text(most));
}
