// What a model has answered, so that people can read it.

import { button, make, number, save, wide } from "./dom.js";
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
  if (!values.length) return [make("p", { className: "quiet" }, "It has no values.")];
  if (isText(datatype)) return texts(name, values);
  const columns = shape.at(-1) ?? 1;
  const rows = values.length / columns;
  const isWhole = columns <= FEW_COLUMNS && rows <= MOST_ROWS;
  const drawn = columns <= FEW_COLUMNS ? rowsOf(name, values, columns) : best(name, values, columns);
  return isWhole ? [drawn] : [drawn, summary(name, values, rows)];
}

function texts(name, all) {
  const parts = all.slice(0, MOST_ROWS).map((text) => make("pre", {}, text.slice(0, MOST_CHARACTERS)));
  if (all.length > MOST_ROWS || all.some((text) => text.length > MOST_CHARACTERS)) {
    const said = `Not all of ${number(all.length)} texts is shown. `;
    parts.push(make("p", {}, said, saveAll(`${name}.txt`, () => all.join("\n"))));
  }
  return parts;
}

const saveAll = (file, text) => (
  button("Save all of it", () => save(file, text(), "text/plain"), { className: "second" }));

const cell = (value) => make("td", {}, typeof value === "number" ? number(value) : String(value));

function rowsOf(name, values, columns) {
  const lines = [];
  for (let from = 0; from < values.length && lines.length < MOST_ROWS; from += columns) {
    lines.push(make("tr", {}, ...Array.from(values.slice(from, from + columns), cell)));
  }
  return wide(name, make("table", {}, make("tbody", {}, ...lines)));
}

/** The largest values of each row and where they stand: of scores, the likeliest classes. */
function best(name, values, columns) {
  const lines = [];
  for (let from = 0; from < values.length && lines.length < MOST_ROWS; from += columns) {
    const cells = largest(values, from, from + columns).map((place) => (
      make("td", {}, `${place - from}: ${shortly(values[place])}`)));
    lines.push(make("tr", {}, ...cells));
  }
  return wide(name, make("table", {},
    make("caption", {}, `The ${BEST} largest of each row, with their places`), make("tbody", {}, ...lines)));
}

const shortly = (value) => (typeof value === "number" ? number(value) : String(value));

/** Places of the largest values between two; what is no number is none of them. */
function largest(values, from, to) {
  const places = [];
  for (let place = from; place < to; place += 1) {
    const value = values[place];
    if (value !== value || (places.length === BEST && value <= values[places[BEST - 1]])) continue;
    let at = places.length;
    while (at > 0 && value > values[places[at - 1]]) at -= 1;
    places.splice(at, 0, place);
    places.length = Math.min(places.length, BEST);
  }
  return places;
}

function summary(name, values, rows) {
  let [least, most, sum, finite] = [Infinity, -Infinity, 0, 0];
  for (const each of values) {
    const value = Number(each);
    if (!Number.isFinite(value)) continue;
    [least, most, sum, finite] = [Math.min(least, value), Math.max(most, value), sum + value, finite + 1];
  }
  const parts = [`${number(values.length)} values`];
  if (finite) parts.push(` from ${number(least)} to ${number(most)}, on average ${number(sum / finite)}`);
  if (finite < values.length) parts.push(`, ${number(values.length - finite)} of them infinite or no numbers`);
  if (rows > MOST_ROWS) parts.push(`; the first ${MOST_ROWS} of ${number(rows)} rows are shown`);
  return make("p", {}, `${parts.join("")}. `, saveAll(`${name}.txt`, () => Array.from(values, String).join("\n")));
}
