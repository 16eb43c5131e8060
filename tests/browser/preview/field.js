// What a panel's configuration makes of a field: its name, its options after the overrides, and for
// each value the text and the colour that are shown. Reductions of a field to one number are here too.

import { CONTINUOUS, mixed, seriesColor, toCss } from "./color.js";
import { formatNumber } from "./unit.js";

/** What a field is called where it is shown. */
export function nameOf({ name, legend, labels, config }) {
  if (config.displayName) {
    return config.displayName
      .replace(/\$\{__field\.labels\.(\w+)\}/g, (_, label) => labels[label] ?? "")
      .replace(/\$\{__field\.(?:display)?[nN]ame\}/g, () => legend ?? name);
  }
  return legend ?? name;
}

/** The frames with the panel's defaults and overrides in their fields, and their series numbered. */
export function configured(frames, { defaults = {}, overrides = [] } = {}, colorMode) {
  const numbers = frames
    .flatMap(({ fields }) => fields.filter(({ type }) => type === "number"))
    .flatMap(({ values }) => values.filter(Number.isFinite));
  // Of all fields together, unless a field has bounds of its own.
  const range = [Math.min(...numbers), Math.max(...numbers)];
  let series = 0;
  return frames.map((frame) => ({
    ...frame,
    fields: frame.fields.map((field) => {
      const number = field.type === "number" ? series++ : 0;
      const config = {
        color: { mode: colorMode },
        ...defaults,
        custom: { ...defaults.custom },
        ...field.config,
      };
      // Matched by the name before any override gives another one.
      for (const { matcher, properties } of overrides) {
        if (!matches(matcher, field, frame)) continue;
        for (const { id, value } of properties) set(config, id, value);
      }
      return { ...field, config, number, range };
    }),
  }));
}

function matches({ id, options }, field, frame) {
  const names = [field.name, nameOf(field)];
  switch (id) {
    case "byName":
      return names.includes(options);
    case "byNames": {
      const isNamed = names.some((name) => options.names.includes(name));
      return options.mode === "exclude" ? field.type !== "time" && !isNamed : isNamed;
    }
    case "byRegexp": {
      const [, pattern, flags] = /^\/(.*)\/([a-z]*)$/.exec(options) ?? [null, `^${options}$`, ""];
      return new RegExp(pattern, flags).test(nameOf(field));
    }
    case "byFrameRefID":
      return frame.refId === options;
    case "byType":
      return field.type === options;
    default:
      throw new Error(`no matcher ${id} is known`);
  }
}

function set(config, id, value) {
  if (id.startsWith("custom.")) {
    config.custom = { ...config.custom, [id.slice("custom.".length)]: value };
  } else {
    config[id] = value;
  }
}

/** Whether a field is left out of the picture. */
export const isHidden = ({ config }) => {
  return Boolean(config.custom?.hideFrom?.viz || config.custom?.hidden);
};

/** The text and the colour of one value. */
export function display(field, value) {
  const { config } = field;
  const isText = field.type === "string" && !config.unit;
  const isMoment = field.type === "time" && !config.unit?.startsWith("dateTime");
  const unit = isMoment ? "dateTimeAsSystem" : config.unit;
  const number = isText || unit === "string" ? NaN : toNumber(value);
  const mapping = mappingOf(config.mappings ?? [], value);
  // A text that looks like a number is shown as one, unless its unit forbids that.
  let text = mapping?.text;
  if (text === undefined && !Number.isNaN(number)) {
    text = formatNumber(number, unit, config.decimals);
  }
  if (text === undefined) {
    const said = value === null || value === undefined ? "" : String(value);
    text = said === "" ? (config.noValue ?? "") : said;
  }
  const color = mapping?.color ? toCss(mapping.color) : colorOf(field, number);
  return { text, color, number, isMapped: mapping !== undefined };
}

function toNumber(value) {
  if (typeof value === "number") return value;
  return value === "" || value === null || value === undefined ? NaN : Number(value);
}

function mappingOf(mappings, value) {
  for (const { type, options } of mappings) {
    if (type === "value" && value !== null && String(value) in options) {
      return options[String(value)];
    }
    const number = toNumber(value);
    const isWithin =
      type === "range" &&
      number >= (options.from ?? -Infinity) &&
      number <= (options.to ?? Infinity);
    const isSpecial = type === "special" && isOfKind(options.match, value);
    const isLike =
      type === "regex" && typeof value === "string" && toRegExp(options.pattern).test(value);
    if (isWithin || isSpecial || isLike) return options.result;
  }
  return undefined;
}

const toRegExp = (pattern) => {
  const [, source, flags] = /^\/(.*)\/([a-z]*)$/.exec(pattern) ?? [null, `^${pattern}$`, ""];
  return new RegExp(source, flags);
};

function isOfKind(kind, value) {
  const isNull = value === null || value === undefined;
  const isNaN = typeof value === "number" && Number.isNaN(value);
  return {
    null: isNull,
    nan: isNaN,
    "null+nan": isNull || isNaN,
    empty: value === "",
    true: value === true,
    false: value === false,
  }[kind];
}

/** The colour of a number, or of the whole field where it has only one. */
export function colorOf(field, number) {
  const { mode, fixedColor } = field.config.color;
  if (mode === "thresholds") return toCss(thresholdAt(field, number).color);
  if (mode === "fixed" || mode === "shades") return toCss(fixedColor ?? "gray");
  if (mode.startsWith("palette-classic")) return seriesColor(field.number);
  if (CONTINUOUS[mode]) return mixed(CONTINUOUS[mode], shareOf(field, number));
  throw new Error(`no colour mode ${mode} is known`);
}

const DEFAULT_STEPS = [
  { color: "green", value: null },
  { color: "red", value: 80 },
];

/** The steps of a field's thresholds, the first from the least number on. */
export function thresholdsOf({ config }) {
  const { mode = "absolute", steps = DEFAULT_STEPS } = config.thresholds ?? {};
  return { mode, steps: steps.map(({ color, value }) => ({ color, value: value ?? -Infinity })) };
}

function thresholdAt(field, number) {
  const { mode, steps } = thresholdsOf(field);
  const at = mode === "percentage" ? 100 * shareOf(field, number) : number;
  return steps.findLast(({ value }) => at >= value) ?? steps[0];
}

/** Where a number is between the least and the most that its field can show, from 0 to 1. */
export function shareOf({ config, range }, number) {
  const [least, most] = [config.min ?? range[0], config.max ?? range[1]];
  return most > least ? (number - least) / (most - least) : 0;
}

const isThere = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const sum = (values) => values.reduce((total, value) => total + value, 0);

const REDUCERS = {
  last: ["Last", (values) => values.at(-1)],
  lastNotNull: ["Last *", (values) => values.findLast(isThere)],
  first: ["First", (values) => values[0]],
  firstNotNull: ["First *", (values) => values.find(isThere)],
  min: ["Min", (values) => Math.min(...values.filter(isThere))],
  max: ["Max", (values) => Math.max(...values.filter(isThere))],
  mean: ["Mean", (values) => sum(values.filter(isThere)) / values.filter(isThere).length],
  sum: ["Total", (values) => sum(values.filter(isThere))],
  count: ["Count", (values) => values.length],
};

/** What a field comes to, by a reduction's id. */
export function reduced({ values }, id) {
  return reducer(id)[1](values) ?? null;
}

/** What a reduction is called. */
export const reducerName = (id) => reducer(id)[0];

function reducer(id) {
  if (!REDUCERS[id]) throw new Error(`no calculation ${id} is known`);
  return REDUCERS[id];
}
