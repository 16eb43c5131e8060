// Numbers on their own: stat, gauge and bar gauge, one for each series or row.

import { mixed, readableOn, toCss, withAlpha } from "../color.js";
import { display, isHidden, nameOf, reduced, shareOf, thresholdsOf } from "../field.js";
import { element, styled, textWidth } from "../page.js";

export const colorMode = "thresholds";

/** Draws large numbers. */
export function drawStat(room, { frames, options }) {
  const values = valuesOf(frames, options);
  const { textMode = "auto", colorMode = "value", graphMode = "area" } = options;
  const showsName =
    textMode === "value_and_name" ||
    textMode === "name" ||
    (textMode === "auto" && values.length > 1);
  const showsValue = textMode !== "name" && textMode !== "none";
  const tiles = tilesOf(room, values.length, options.orientation, "stat");
  const showsGraph = graphMode !== "none" && values.some(({ field }) => field.values.length > 1);
  const [{ clientWidth, clientHeight }] = tiles;
  const height = clientHeight * (showsGraph ? 0.6 : 1);
  const hasBoth = showsName && showsValue;
  const isWide = hasBoth && options.wideLayout !== false && clientWidth > 2.5 * clientHeight;
  const width = (clientWidth - 16) * (isWide ? 0.5 : 1);
  const size = (texts, most, weight) => fitting(texts, width, Math.min(most, 80), weight);
  const name = size(
    values.map(({ name }) => name),
    Math.min(height * (isWide ? 0.3 : 0.22), 18),
    400,
  );
  const value = size(
    values.map(({ text }) => text),
    height * (hasBoth && !isWide ? 0.5 : 0.7),
    500,
  );
  values.forEach((one, at) => {
    const tile = tiles[at];
    const color = colorMode === "none" ? toCss("text") : one.color;
    if (colorMode === "background") {
      tile.style.background = `linear-gradient(120deg, ${mixed([color, "#000000"], 0.12)}, ${color})`;
    } else if (colorMode === "background_solid") {
      tile.style.background = color;
    }
    const isFilled = colorMode.startsWith("background");
    const plain = isFilled ? readableOn(color) : toCss("text");
    if (showsGraph && one.field.values.length > 1) tile.append(sparkline(tile, one.field, color));
    if (showsName)
      tile.append(styled(element("div.name", one.name), { fontSize: `${name}px`, color: plain }));
    if (showsValue) {
      const styles = { fontSize: `${value}px`, color: isFilled ? plain : color };
      tile.append(styled(element("div.value", one.text), styles));
    }
    if (isWide) tile.classList.add("wide");
    else if (values.length === 1 || options.justifyMode === "center")
      tile.classList.add("centered");
  });
}

/** Draws bars. */
export function drawBarGauge(room, { frames, options }) {
  const values = valuesOf(frames, options);
  const isFlat = options.orientation === "horizontal" || room.clientWidth > room.clientHeight;
  if (!isFlat || options.orientation === "vertical") {
    throw new Error("bars that stand are not known");
  }
  const names = Math.min(
    Math.max(...values.map(({ name }) => textWidth(name, 12))) + 12,
    room.clientWidth / 3,
  );
  const bars = values.map(({ name, text, color, share }) => {
    const filled = `${100 * Math.min(Math.max(share, 0), 1)}%`;
    const background = `linear-gradient(to right, ${withAlpha(color, 0.5)}, ${color})`;
    return element(
      "div.bar",
      styled(element("span.name", name), { width: `${names}px` }),
      element("span.track", styled(element("i"), { width: filled, background })),
      styled(element("span.value", text), { color }),
    );
  });
  room.classList.add("bars");
  room.append(...bars);
}

/** Draws dials. */
export function drawGauge(room, { frames, options }) {
  const values = valuesOf(frames, options);
  const tiles = tilesOf(room, values.length, options.orientation, "gauge");
  values.forEach(({ field, name, text, color, share }, at) => {
    const radius = Math.min(tiles[at].clientWidth / 2, tiles[at].clientHeight * 0.7) - 8;
    const arc = (from, to, size, stroke, width) => {
      const point = (part) => {
        const angle = Math.PI * (1 - part);
        return `${radius + size * Math.cos(angle)} ${radius - size * Math.sin(angle)}`;
      };
      return `<path d="M ${point(from)} A ${size} ${size} 0 0 1 ${point(to)}" fill="none" stroke="${stroke}" stroke-width="${width}"/>`;
    };
    const { steps } = thresholdsOf(field);
    const part = (value) => Math.min(Math.max(shareOf(field, value), 0), 1);
    const rim = steps.map((step, number) => {
      const end = steps[number + 1]?.value ?? Infinity;
      return arc(part(step.value), part(end), radius - 2, toCss(step.color), 3);
    });
    const track = arc(0, 1, radius - 16, withAlpha("text", 0.12), 18);
    const dial = arc(0, Math.min(Math.max(share, 0), 1), radius - 16, color, 18);
    const picture = element("div.dial");
    picture.innerHTML = `<svg width="${2 * radius}" height="${radius}">${track}${dial}${rim.join("")}</svg>`;
    const shown = styled(element("div.value", text), { color, fontSize: `${radius * 0.35}px` });
    tiles[at].append(picture, shown, values.length > 1 ? element("div.name", name) : "");
  });
}

// What each series comes to.
function valuesOf(frames, { reduceOptions = {} }) {
  const { calcs = ["lastNotNull"], values: eachRow = false, fields: pattern = "" } = reduceOptions;
  const named = /^\/(.*)\/$/.exec(pattern)?.[1];
  const fields = frames
    .flatMap(({ fields }) => fields)
    .filter((field) => {
      if (isHidden(field)) return false;
      return named === undefined ? field.type === "number" : new RegExp(named).test(nameOf(field));
    });
  return fields.flatMap((field) => {
    const numbers = eachRow ? field.values : [reduced(field, calcs[0])];
    return numbers.map((number) => {
      const shown = display(field, number);
      return { ...shown, field, name: nameOf(field), share: shareOf(field, shown.number) };
    });
  });
}

// "Vertical" stands for tiles as high as the panel, side by side.
function tilesOf(room, count, orientation = "auto", kind) {
  const isWide = room.clientWidth > room.clientHeight;
  const isSideBySide = orientation === "vertical" || (orientation === "auto" && isWide);
  room.classList.add("tiles", isSideBySide ? "in-row" : "in-column");
  const tiles = Array.from({ length: count }, () => element(`div.tile.${kind}`));
  room.append(...tiles);
  return tiles;
}

function fitting(texts, width, height, weight) {
  const widest = Math.max(...texts.map((text) => textWidth(text, 100, weight)), 1);
  return Math.max(Math.min(height, (100 * width) / widest), 8);
}

function sparkline(tile, { values }, color) {
  const numbers = values.filter(Number.isFinite);
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const [width, height] = [tile.clientWidth, tile.clientHeight * 0.35];
  const points = values.map((value, at) => {
    const share = most > least ? (value - least) / (most - least) : 0.5;
    return `${(width * at) / (values.length - 1)},${height - 2 - share * (height - 4)}`;
  });
  const line = element("div.sparkline");
  line.innerHTML = `<svg width="${width}" height="${height}"><polygon points="0,${height} ${points.join(" ")} ${width},${height}" fill="${withAlpha(color, 0.2)}"/><polyline points="${points.join(" ")}" fill="none" stroke="${color}"/></svg>`;
  return line;
}
