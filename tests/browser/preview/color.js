// Colours by the names that Grafana gives them, its palette for series, and its schemes.

const SHADES = ["super-light", "light", "", "semi-dark", "dark"];
const HUES = {
  red: ["#FFA6B0", "#FF7383", "#F2495C", "#E02F44", "#C4162A"],
  orange: ["#FFCB7D", "#FFB357", "#FF9830", "#FF780A", "#FA6400"],
  yellow: ["#FFF899", "#FFEE52", "#FADE2A", "#F2CC0C", "#E0B400"],
  green: ["#C8F2C2", "#96D98D", "#73BF69", "#56A64B", "#37872D"],
  blue: ["#C0D8FF", "#8AB8FF", "#5794F2", "#3274D9", "#1F60C4"],
  purple: ["#DEB6F2", "#CA95E5", "#B877D9", "#A352CC", "#8F3BB8"],
};
const PLAIN = { gray: "#808080", grey: "#808080", white: "#FFFFFF", black: "#000000" };

const NAMED = new Map(Object.entries(PLAIN));
for (const [hue, shades] of Object.entries(HUES)) {
  shades.forEach((color, at) => NAMED.set(SHADES[at] ? `${SHADES[at]}-${hue}` : hue, color));
}

const PALETTE = `73BF69 F2CC0C 8AB8FF FF780A F2495C 5794F2 B877D9 705DA0 37872D FADE2A 447EBC C15C17
  890F02 0A437C 6D1F62 584477 B7DBAB F4D598 70DBED F9BA8F F29191 82B5D8 E5A8E2 AEA2E0 629E51 E5AC0E
  64B0C8 E0752D BF1B00 0A50A1 962D82 614D93`.split(/\s+/);

/** The colour of the series with this number. */
export const seriesColor = (number) => `#${PALETTE[number % PALETTE.length]}`;

/** A colour that CSS understands. */
export function toCss(name) {
  if (name === "transparent") return "rgba(0, 0, 0, 0)";
  if (name === "text") return cssVariable("--text");
  const color = NAMED.get(name) ?? name;
  if (!CSS.supports("color", color)) throw new Error(`no colour ${name} is known`);
  return color;
}

/** The same, let through in part. */
export function withAlpha(name, alpha) {
  const [red, green, blue, own] = toChannels(name);
  return `rgba(${red}, ${green}, ${blue}, ${own * alpha})`;
}

/** What can be read on a colour. */
export function readableOn(name) {
  const [red, green, blue, alpha] = toChannels(name);
  if (alpha < 0.3) return cssVariable("--text");
  return 0.299 * red + 0.587 * green + 0.114 * blue > 150 ? "#000000" : "#FFFFFF";
}

/** A colour of a scheme, from 0 for the least to 1 for the most. */
export function schemeColor(scheme, share) {
  const known = SCHEMES[scheme];
  if (!known) throw new Error(`no scheme ${scheme} is known`);
  // What is least is nearest to the background.
  const stops = known.isSequential && !isDark() ? [...known.stops].reverse() : known.stops;
  return mixed(stops, share);
}

const sequential = (text) => ({ isSequential: true, stops: text.split(" ") });
const diverging = (text) => ({ isSequential: false, stops: text.split(" ") });

const SCHEMES = {
  Blues: sequential("#08306b #08519c #2171b5 #4292c6 #6baed6 #9ecae1 #c6dbef #f7fbff"),
  Greens: sequential("#00441b #006d2c #238b45 #41ab5d #74c476 #a1d99b #c7e9c0 #f7fcf5"),
  Oranges: sequential("#7f2704 #a63603 #d94801 #f16913 #fd8d3c #fdae6b #fdd0a2 #fff5eb"),
  Reds: sequential("#67000d #a50f15 #cb181d #ef3b2c #fb6a4a #fc9272 #fcbba1 #fff5f0"),
  YlOrRd: sequential("#800026 #bd0026 #e31a1c #fc4e2a #fd8d3c #feb24c #fed976 #ffffcc"),
  RdYlGn: diverging("#a50026 #f46d43 #fee08b #d9ef8b #66bd63 #006837"),
  Spectral: diverging("#9e0142 #f46d43 #fee08b #e6f598 #66c2a5 #5e4fa2"),
  Turbo: diverging("#30123b #4675ed #1bcfd4 #61fc6c #d2e935 #fe9b2d #d93806 #7a0403"),
  Viridis: diverging("#440154 #46327e #365c8d #277f8e #1fa187 #4ac16d #a0da39 #fde725"),
};

/** The stops of a field's colour mode that runs from one colour into another. */
export const CONTINUOUS = {
  "continuous-GrYlRd": ["green", "yellow", "red"],
  "continuous-RdYlGr": ["red", "yellow", "green"],
  "continuous-BlYlRd": ["dark-blue", "super-light-yellow", "dark-red"],
  "continuous-YlRd": ["super-light-yellow", "dark-red"],
  "continuous-BlPu": ["blue", "purple"],
  "continuous-YlBl": ["super-light-yellow", "dark-blue"],
  "continuous-blues": ["#181b1f", "dark-blue"],
  "continuous-greens": ["#181b1f", "dark-green"],
  "continuous-purples": ["#181b1f", "dark-purple"],
  "continuous-reds": ["#181b1f", "dark-red"],
};

/** Between a list of colours, from 0 to 1. */
export function mixed(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const below = Math.min(Math.floor(place), stops.length - 2);
  const [from, to] = [toChannels(stops[below]), toChannels(stops[below + 1])];
  const channel = (at) => Math.round(from[at] + (to[at] - from[at]) * (place - below));
  return `rgb(${channel(0)}, ${channel(1)}, ${channel(2)})`;
}

/** A colour of the page's own, by its custom property. */
export const cssVariable = (name) => {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
};

const isDark = () => document.documentElement.dataset.theme === "dark";

const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

// Red, green and blue to 255, and how much of it covers, to 1.
function toChannels(name) {
  canvas.fillStyle = toCss(name);
  const color = canvas.fillStyle;
  if (color.startsWith("#")) {
    return [...[1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16)), 1];
  }
  return color.match(/[\d.]+/g).map(Number);
}
