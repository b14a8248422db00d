// What a model has answered, so that people can read it.

import { make, number, saveButton, wide } from "./dom.js";
import { isText } from "./tensors.js";

const FEW_COLUMNS = 12;
const MOST_ROWS = 20;
const BEST = 5;
const MOST_CHARACTERS = 20_000;

export function outputElement(output) {
  const { name, datatype, shape } = output;
  return make("section", { className: "output" },
    make("h3", {}, name, " ", make("small", {}, `${datatype} [${shape.join(", ")}]`)), ...shown(output));
}

function shown({ name, datatype, shape, values }) {
  const all = Array.from(values);
  if (isText(datatype)) return texts(name, all);
  const columns = shape.at(-1) ?? 1;
  const rows = columns ? all.length / columns : 0;
  const parts = [];
  if (columns <= FEW_COLUMNS) parts.push(table(name, all, columns, Math.min(rows, MOST_ROWS)));
  else if (rows <= MOST_ROWS) parts.push(best(name, all, columns, rows));
  if (all.length > FEW_COLUMNS * MOST_ROWS || columns > FEW_COLUMNS) parts.push(summary(name, all));
  return parts;
}

function texts(name, all) {
  const parts = all.slice(0, MOST_ROWS).map((text) => make("pre", {}, text.slice(0, MOST_CHARACTERS)));
  if (all.length > MOST_ROWS || all.some((text) => text.length > MOST_CHARACTERS)) {
    parts.push(make("p", {}, saveButton("Save all of it", `${name}.txt`, all.join("\n"), "text/plain")));
  }
  return parts;
}

const cell = (value) => make("td", {}, typeof value === "number" ? number(value) : String(value));

function table(name, all, columns, rows) {
  const lines = Array.from({ length: rows }, (_, row) => make("tr", {},
    ...all.slice(row * columns, (row + 1) * columns).map(cell)));
  return wide(name, make("table", {}, make("tbody", {}, ...lines)));
}

/** The largest values of each row and where they stand: of scores, the likeliest classes. */
function best(name, all, columns, rows) {
  const lines = Array.from({ length: rows }, (_, row) => {
    const values = all.slice(row * columns, (row + 1) * columns).map((value, place) => [Number(value), place]);
    values.sort(([a], [b]) => b - a);
    const cells = values.slice(0, BEST).map(([value, place]) => make("td", {}, `${place}: ${number(value)}`));
    return make("tr", {}, ...cells);
  });
  return wide(name, make("table", {},
    make("caption", {}, `The ${BEST} largest of each row, with their places`), make("tbody", {}, ...lines)));
}

function summary(name, all) {
  const numbers = all.map(Number);
  let [least, most, sum] = [Infinity, -Infinity, 0];
  for (const value of numbers) [least, most, sum] = [Math.min(least, value), Math.max(most, value), sum + value];
  const mean = number(sum / all.length);
  const file = JSON.stringify(numbers);
  return make("p", {}, `${number(all.length)} values from ${number(least)} to ${number(most)}, on average ${mean} `,
    saveButton("Save all of them", `${name}.json`, file, "application/json"));
}
