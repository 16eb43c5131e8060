// The transformations of a panel: tables are merged, sorted, and their columns ordered, renamed and
// left out, by Grafana's rules. One that it does not know is an error.

import { nameOf } from "./field.js";

/** The frames after each of the panel's transformations in turn. */
export function transformed(frames, transformations) {
  return transformations
    .filter(({ disabled }) => !disabled)
    .reduce((before, { id, options }) => {
      if (!BY_ID[id]) throw new Error(`no transformation ${id} is known`);
      return BY_ID[id](before, options);
    }, frames);
}

const BY_ID = {
  filterFieldsByName,
  labelsToFields,
  limit,
  merge,
  organize,
  sortBy,
};

const lengthOf = ({ fields }) => fields[0]?.values.length ?? 0;
const rowsOf = (frame) => Array.from({ length: lengthOf(frame) }, (_, row) => row);
const picked = (frame, rows) => ({
  ...frame,
  fields: frame.fields.map((field) => ({ ...field, values: rows.map((row) => field.values[row]) })),
});

// Rows that say nothing different in the columns they share become one.
function merge(frames) {
  const tables = frames.filter(({ fields }) => fields.length > 0);
  if (frames.length < 2) return frames;
  if (tables.length === 0) return frames.slice(0, 1);
  const columns = new Map();
  for (const { fields } of tables) {
    for (const field of fields) if (!columns.has(field.name)) columns.set(field.name, field);
  }
  const merged = [];
  for (const table of tables) {
    for (const row of rowsOf(table)) {
      const values = Object.fromEntries(
        table.fields.map(({ name, values }) => [name, values[row]]),
      );
      const fitting = merged.filter((other) => {
        return Object.entries(values).every(([name, value]) => (other[name] ?? value) === value);
      });
      for (const other of fitting) Object.assign(other, values);
      if (fitting.length === 0) merged.push(values);
    }
  }
  const fields = [...columns.values()].map((field) => ({
    ...field,
    values: merged.map((row) => row[field.name] ?? null),
  }));
  return [{ refId: tables[0].refId, isTable: true, fields }];
}

function organize(frames, { excludeByName, includeByName, indexByName, renameByName }) {
  const place = (field) => indexByName?.[nameOf(field)] ?? Number.MAX_SAFE_INTEGER;
  const includes = Object.values(includeByName ?? {}).some(Boolean);
  return frames.map((frame) => ({
    ...frame,
    fields: [...frame.fields]
      .sort((one, other) => place(one) - place(other))
      .filter((field) => !excludeByName?.[nameOf(field)])
      .filter((field) => !includes || includeByName[nameOf(field)])
      .map((field) => {
        const name = renameByName?.[nameOf(field)];
        return name ? { ...field, config: { ...field.config, displayName: name } } : field;
      }),
  }));
}

function filterFieldsByName(frames, { include, exclude }) {
  const names = (choice, field) => {
    const pattern = choice?.pattern && new RegExp(choice.pattern);
    return (
      (choice?.names ?? []).includes(nameOf(field)) || (pattern && pattern.test(nameOf(field)))
    );
  };
  return frames.map((frame) => ({
    ...frame,
    fields: frame.fields.filter((field) => {
      return (!include || names(include, field)) && !(exclude && names(exclude, field));
    }),
  }));
}

function sortBy(frames, { sort }) {
  const [{ field: name, desc }] = sort;
  return frames.map((frame) => {
    const field = frame.fields.find((field) => nameOf(field) === name);
    if (!field) return frame;
    const rows = rowsOf(frame).sort((one, other) =>
      compare(field.values[one], field.values[other]),
    );
    return picked(frame, desc ? rows.reverse() : rows);
  });
}

function limit(frames, { limitField }) {
  return frames.map((frame) => picked(frame, rowsOf(frame).slice(0, limitField)));
}

function labelsToFields(frames, { mode, keepLabels }) {
  if (mode === "rows") throw new Error("labels to fields by rows is not known");
  const tables = frames.map((frame) => {
    const [value] = frame.fields.filter(({ type }) => type === "number");
    const labels = Object.entries(value?.labels ?? {});
    const kept = labels.filter(([label]) => !keepLabels || keepLabels.includes(label));
    const texts = kept.map(([name, text]) => ({
      name,
      type: "string",
      values: rowsOf(frame).map(() => text),
      labels: {},
      config: {},
    }));
    const plain = frame.fields.map((field) => ({ ...field, labels: {}, legend: undefined }));
    return { ...frame, isTable: true, fields: [plain[0], ...texts, ...plain.slice(1)] };
  });
  return merge(tables);
}

/** The order of two cells: numbers by size, texts as people order them, nothing before all. */
export function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  const isNothing = (value) => value === null || value === undefined;
  if (isNothing(one) || isNothing(other))
    return Number(isNothing(other)) - Number(isNothing(one)) || 0;
  return String(one).localeCompare(String(other), "en", { numeric: true, sensitivity: "base" });
}
