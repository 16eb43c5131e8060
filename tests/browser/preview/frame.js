// Answers of Prometheus as the frames that Grafana's panels get: columns of times, texts and numbers,
// one frame a series, or one table a query. It follows Grafana's data source in how columns and
// series are named. Overrides and transformations come later.

/** The frames of a panel's queries, in their order. */
export function framesOf(targets) {
  const shown = targets.filter((target) => !target.hide);
  const tables = shown.filter(({ format }) => format === "table");
  return shown.flatMap((target) => {
    if (!target.data) throw new Error(`query ${target.refId} has no answer`);
    const series = seriesOf(target.data);
    if (target.format === "table") {
      const value = tables.length > 1 ? `Value #${target.refId}` : "Value";
      return [tableOf(series, target.refId, value)];
    }
    const frames = series.map((one) => frameOf(one, target));
    return target.format === "heatmap" ? [heatmapOf(frames, target.refId)] : frames;
  });
}

/** The distance of two points in milliseconds, or none where nothing has two. */
export function stepOf(frames) {
  let step;
  for (const { fields } of frames) {
    const times = fields.find(({ type }) => type === "time")?.values ?? [];
    for (let at = 1; at < times.length; at += 1) {
      const distance = times[at] - times[at - 1];
      if (distance > 0 && !(step <= distance)) step = distance;
    }
  }
  return step;
}

// Labels, and points of a time in milliseconds and a number.
function seriesOf({ resultType, result }) {
  const point = ([time, value]) => [Math.round(time * 1000), parseValue(value)];
  switch (resultType) {
    case "matrix":
      return result.map(({ metric, values }) => ({ labels: metric, points: values.map(point) }));
    case "vector":
      return result.map(({ metric, value }) => ({ labels: metric, points: [point(value)] }));
    case "scalar":
      return [{ labels: {}, points: [point(result)] }];
    default:
      throw new Error(`no result of type ${resultType} is known`);
  }
}

const parseValue = (text) => {
  if (text === "+Inf" || text === "Inf") return Infinity;
  return text === "-Inf" ? -Infinity : Number(text);
};

const timeField = (values) => ({ name: "Time", type: "time", values, labels: {}, config: {} });

function frameOf({ labels, points }, { refId, legendFormat }) {
  const value = {
    name: "Value",
    type: "number",
    values: points.map(([, number]) => number),
    labels,
    config: {},
    legend: legendOf(labels, legendFormat),
  };
  return { refId, fields: [timeField(points.map(([time]) => time)), value] };
}

// `{{label}}` is the label's value, and nothing where there is no such label.
function legendOf(labels, format) {
  if (!format || format === "__auto") return describe(labels);
  return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? "");
}

function describe({ __name__: metric = "", ...labels }) {
  const texts = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  return texts.length > 0 || !metric ? `${metric}{${texts.join(", ")}}` : metric;
}

// A column for every label that any series has, and one row a point.
function tableOf(series, refId, name) {
  const labels = [];
  for (const one of series) {
    labels.push(
      ...Object.keys(one.labels)
        .sort()
        .filter((label) => !labels.includes(label)),
    );
  }
  const rows = series.flatMap(({ labels, points }) => points.map((point) => ({ labels, point })));
  const texts = labels.map((label) => ({
    name: label,
    type: "string",
    values: rows.map(({ labels }) => labels[label] ?? ""),
    labels: {},
    config: {},
  }));
  const value = { name, type: "number", values: rows.map(({ point }) => point[1]), labels: {} };
  const time = timeField(rows.map(({ point }) => point[0]));
  return { refId, isTable: true, fields: [time, ...texts, { ...value, config: {} }] };
}

// What is less is an error of rounding.
const LEAST = 1e-9;

// Buckets that count all up to a bound, as buckets that count from the bound before it.
function heatmapOf(frames, refId) {
  const bound = (frame) => parseValue(frame.fields[1].labels.le ?? "NaN");
  const sorted = [...frames].sort((one, other) => bound(one) - bound(other));
  const times = [...new Set(sorted.flatMap(({ fields }) => fields[0].values))].sort(
    (a, b) => a - b,
  );
  let below = times.map(() => 0);
  const buckets = sorted.map((frame) => {
    const [time, value] = frame.fields;
    const counts = new Map(time.values.map((moment, at) => [moment, value.values[at]]));
    const upTo = times.map((moment) => counts.get(moment));
    const values = upTo.map((count, at) => {
      if (count === undefined) return null;
      return count - below[at] < LEAST ? 0 : count - below[at];
    });
    below = upTo.map((count, at) => count ?? below[at]);
    return { ...value, name: value.legend, values };
  });
  return { refId, isHeatmap: true, fields: [timeField(times), ...buckets] };
}
