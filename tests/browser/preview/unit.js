// Numbers as texts in the units that Grafana knows. What is written here reads as Grafana writes it;
// a unit that it does not know is an error, since a preview must not pass for more than it is.

/** The text of a number in a unit, with as many decimals as are asked for, or as many as it needs. */
export function formatNumber(value, unit, decimals) {
  const format = FORMATS[unit ?? "none"] ?? affix(unit);
  if (!format) throw new Error(`no unit ${unit} is known`);
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  return format(value, decimals);
}

const affix = (unit) => {
  if (unit.startsWith("suffix:")) return withSuffix(unit.slice("suffix:".length));
  if (unit.startsWith("prefix:")) {
    return (value, decimals) => unit.slice("prefix:".length) + toFixed(value, decimals);
  }
  return undefined;
};

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const WEEK = 7 * DAY;
const YEAR = 365 * DAY;
const SOLAR_YEAR = 3.15569e7;

const withSuffix = (suffix) => (value, decimals) => toFixed(value, decimals) + suffix;

// Steps of a factor each: 1 200 is 1.2 K.
const scaled = (base, suffixes) => (value, decimals) => {
  if (value === 0) return toFixed(0, decimals) + suffixes[0];
  const power = Math.floor(Math.log(Math.abs(value)) / Math.log(base) + 1e-9);
  const step = Math.min(Math.max(power, 0), suffixes.length - 1);
  return toFixed(value / base ** step, decimals) + suffixes[step];
};

const SHORT = ["", " K", " Mil", " Bil", " Tri", " Quadr", " Quint", " Sext", " Sept"];
const BINARY = [" B", " KiB", " MiB", " GiB", " TiB", " PiB"];
const DECIMAL = [" B", " kB", " MB", " GB", " TB", " PB"];
const perSecond = (what) =>
  scaled(
    1000,
    ["", "K", "M", "B", "T"].map((step) => `${step} ${what}`),
  );

const FORMATS = {
  none: (value, decimals) => toFixed(value, decimals),
  string: (value) => String(value),
  short: scaled(1000, SHORT),
  percent: withSuffix("%"),
  percentunit: (value, decimals) => `${toFixed(100 * value, decimals)}%`,
  bytes: scaled(1024, BINARY),
  decbytes: scaled(1000, DECIMAL),
  ops: perSecond("ops/s"),
  reqps: perSecond("req/s"),
  cps: perSecond("c/s"),
  s: formatSeconds,
  ms: (value, decimals) => formatSeconds(value / 1000, decimals),
  dtdurations: formatDuration,
  dtdurationms: (value, decimals) => formatDuration(value / 1000, decimals),
  bool: (value) => (value === 0 ? "False" : "True"),
  bool_yes_no: (value) => (value === 0 ? "No" : "Yes"),
  bool_on_off: (value) => (value === 0 ? "Off" : "On"),
  dateTimeAsIso: (value) => isoText(value),
  dateTimeAsSystem: (value) => isoText(value),
  dateTimeFromNow: (value) => fromNow(value),
};

function formatSeconds(value, decimals) {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  for (const [limit, factor, suffix] of [
    [1e-6, 1e-9, " ns"],
    [1e-3, 1e-6, " µs"],
    [1, 1e-3, " ms"],
    [MINUTE, 1, " s"],
    [HOUR, MINUTE, " min"],
    [DAY, HOUR, " hour"],
    [WEEK, DAY, " day"],
    [YEAR, WEEK, " week"],
  ]) {
    if (size < limit) return toFixed(value / factor, decimals) + suffix;
  }
  return `${toFixed(value / SOLAR_YEAR, decimals)} year`;
}

// As many of the units as there are decimals, and one more.
function formatDuration(value, decimals) {
  if (value < 0) return `${formatDuration(-value, decimals)} ago`;
  if (value === 0) return "0 seconds";
  const parts = [];
  let rest = value;
  for (const [name, size] of [
    ["year", YEAR],
    ["month", 30 * DAY],
    ["week", WEEK],
    ["day", DAY],
    ["hour", HOUR],
    ["minute", MINUTE],
    ["second", 1],
    ["millisecond", 1e-3],
  ]) {
    const isAsked = parts.length <= (decimals ?? 0);
    if (!isAsked || (rest < size && parts.length === 0)) continue;
    const count = Math.floor(rest / size + 1e-9);
    parts.push(`${count} ${name}${count === 1 ? "" : "s"}`);
    rest -= count * size;
  }
  return parts.join(", ");
}

let now = 0;

/** The moment that `dateTimeFromNow` counts from, in milliseconds. */
export function setNow(milliseconds) {
  now = milliseconds;
}

function fromNow(value) {
  const seconds = (now - value) / 1000;
  const text = [
    [45, () => "a few seconds"],
    [90, () => "a minute"],
    [45 * MINUTE, (size) => `${Math.round(size / MINUTE)} minutes`],
    [90 * MINUTE, () => "an hour"],
    [22 * HOUR, (size) => `${Math.round(size / HOUR)} hours`],
    [36 * HOUR, () => "a day"],
    [26 * DAY, (size) => `${Math.round(size / DAY)} days`],
    [45 * DAY, () => "a month"],
    [320 * DAY, (size) => `${Math.round(size / (30.4 * DAY))} months`],
    [548 * DAY, () => "a year"],
    [Infinity, (size) => `${Math.round(size / YEAR)} years`],
  ].find(([limit]) => Math.abs(seconds) < limit)[1](Math.abs(seconds));
  return seconds >= 0 ? `${text} ago` : `in ${text}`;
}

const isoText = (value) => new Date(value).toISOString().slice(0, 19).replace("T", " ");

// Zeros at the end are kept only where decimals were asked for.
function toFixed(value, decimals) {
  if (decimals !== undefined && decimals !== null) return value.toFixed(decimals);
  return String(Number(value.toFixed(neededDecimals(value))));
}

// Three digits that say something.
function neededDecimals(value) {
  if (value % 1 === 0) return 0;
  return Math.min(Math.max(2 - Math.floor(Math.log10(Math.abs(value))), 0), 100);
}
