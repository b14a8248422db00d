// One input of a model: what stands in its form, and the tensor that follows from it.

import { make } from "./dom.js";
import { PICTURES, WHOLE, layoutOf, pixels } from "./pictures.js";
import { fits, isFraction, isKnown, isText } from "./tensors.js";

const FEW = 256;
const USUAL = 8; // of a dimension that may be anything
const USUAL_SIDE = 224; // of a picture
const MOST = 2 ** 31 - 1;
const MOST_VALUES = 4_000_000;

export class Field {
  #isRead = false;

  constructor({ name, datatype, shape }, { isOptional }) {
    Object.assign(this, { name, datatype, shape: shape.map(Number), isOptional });
    this.layout = isText(datatype) ? undefined : layoutOf(this.shape);
    const usual = (place) => (place === 0 ? 1 : this.layout ? USUAL_SIDE : USUAL);
    this.dims = this.shape.map((size, place) => (size >= 0 ? undefined : make("input", {
      type: "number", min: 0, max: MOST, value: usual(place),
      "aria-label": `Size of dimension ${place + 1} of ${name}`, oninput: () => this.#fillIn(),
    })));
    this.kind = make("select", { "aria-label": `Values of ${name}`, onchange: () => this.#showKind() },
      ...this.#kinds().map(([value, text]) => make("option", { value }, text)));
    this.given = make("div");
    this.use = make("input", { type: "checkbox", checked: true, "aria-label": `Send ${name}` });
    const sizes = this.shape.flatMap((size, place) => [place ? " × " : "", this.dims[place] ?? String(size)]);
    this.element = make("fieldset", {}, make("legend", {}, name, " ", make("small", {}, datatype)),
      ...(isOptional ? [make("label", { className: "quiet" }, this.use, " send it (optional)")] : []),
      make("p", { className: "shape" }, "[", ...sizes, "] ", this.kind), this.given);
    this.#showKind();
  }

  /** undefined: it is left out. */
  async value() {
    if (this.isOptional && !this.use.checked) return undefined;
    if (!isKnown(this.datatype)) throw new Error(`${this.name}: this page cannot write ${this.datatype}`);
    const made = await this.#make(this.kind.value);
    const { name, datatype } = this;
    const expected = count(made.shape);
    if (made.values.length !== expected) {
      throw new Error(`${name}: expected ${expected} values for [${made.shape.join(", ")}], got ${made.values.length}`);
    }
    return { name, datatype, ...made };
  }

  #kinds() {
    if (isText(this.datatype)) return [["text", "a text for each line"], ["file", "a file, byte by byte"]];
    const kinds = [["numbers", "numbers"], ["random", "random numbers"], ["zeros", "zeros"]];
    if (this.layout) kinds.unshift(["picture", "a picture"]);
    else if (count(this.#sizes()) > FEW) kinds.push(kinds.shift());
    return kinds;
  }

  #sizes() {
    return this.shape.map((size, place) => (this.dims?.[place] ? Number(this.dims[place].value) : Math.max(size, 1)));
  }

  #showKind() {
    const kind = this.kind.value;
    const labelled = { "aria-label": `${this.name}: ${this.kind.selectedOptions[0].text}` };
    this.#isRead = false;
    this.area = this.file = undefined;
    if (kind === "numbers" || kind === "text") {
      this.area = make("textarea", {
        rows: kind === "text" ? 2 : 4, spellcheck: false, ...labelled, oninput: () => { this.#isRead = true; },
      });
      this.given.replaceChildren(this.area);
      this.#fillIn();
    } else if (kind === "file" || kind === "picture") {
      this.file = make("input", { type: "file", ...labelled, ...(kind === "picture" ? { accept: "image/*" } : {}) });
      const usual = isFraction(this.datatype) ? 0 : WHOLE;
      this.scale = make("select", { "aria-label": `Range of the pixels of ${this.name}` },
        ...PICTURES.map(({ label }, place) => make("option", { value: place, selected: place === usual }, label)));
      this.given.replaceChildren(this.file, ...(kind === "picture" ? [" ", this.scale] : []));
    } else {
      this.given.replaceChildren();
    }
  }

  /** A text area that nobody has changed has what would fit. */
  #fillIn() {
    if (!this.area || this.#isRead) return;
    const size = Math.min(count(this.#sizes()), FEW);
    const zero = this.datatype === "BOOL" ? "false" : "0";
    this.area.value = isText(this.datatype) ? "" : `[${Array(size).fill(zero).join(", ")}]`;
  }

  async #make(kind) {
    const shape = this.#sizes();
    const { datatype } = this;
    const size = count(shape);
    if (!shape.every((each) => Number.isInteger(each) && each >= 0)) {
      throw new Error(`${this.name}: expected whole sizes, got [${shape.join(", ")}]`);
    }
    if (size > MOST_VALUES) {
      throw new Error(`${this.name}: this page sends at most ${MOST_VALUES.toLocaleString("en")} values of an input`);
    }
    switch (kind) {
      case "text": {
        const values = size === 1 ? [this.area.value] : this.area.value.replace(/\n$/, "").split("\n");
        return { shape, values, kind };
      }
      case "file": {
        const file = this.#chosen();
        return { shape, values: [new Uint8Array(await file.arrayBuffer())], hasBytes: true, kind, file: file.name };
      }
      case "picture": {
        const file = this.#chosen();
        const range = PICTURES[Number(this.scale.value)];
        return { ...(await pixels(file, this.layout, shape, range, datatype)), kind, file: file.name, range };
      }
      case "random":
        return { shape, values: filled(datatype, size, random), kind };
      case "zeros":
        return { shape, values: filled(datatype, size, () => 0), kind };
      default:
        return { ...this.#numbers(shape), kind };
    }
  }

  #chosen() {
    if (!this.file.files[0]) throw new Error(`${this.name}: choose a file first`);
    return this.file.files[0];
  }

  /** Nested lists say their shape themselves. */
  #numbers(shape) {
    const text = this.area.value.trim();
    const isWhole = !isFraction(this.datatype) && this.datatype !== "BOOL";
    // as texts: a number of 64 bits does not fit into one of JavaScript's
    const quoted = isWhole ? text.replace(/-?\d+/g, '"$&"') : text;
    let found;
    try {
      found = JSON.parse(quoted.startsWith("[") ? quoted : `[${quoted.split(/[\s,]+/).filter(Boolean).join(",")}]`);
    } catch {
      throw new Error(`${this.name}: expected numbers such as [1, 2, 3]`);
    }
    const nested = [];
    for (let inner = found; Array.isArray(inner); inner = inner[0]) nested.push(inner.length);
    const values = found.flat(Infinity).map((value) => (isWhole ? whole(value, this) : value));
    return { shape: nested.length > 1 && nested.length === shape.length ? nested : shape, values };
  }
}

function whole(value, { name, datatype }) {
  if (typeof value !== "string") throw new Error(`${name}: expected whole numbers for ${datatype}, got ${value}`);
  const found = BigInt(value);
  if (!fits(datatype, found)) throw new Error(`${name}: ${value} does not fit into ${datatype}`);
  return found;
}

const count = (shape) => shape.reduce((product, size) => product * size, 1);

function filled(datatype, size, value) {
  if (datatype === "BOOL") return Array.from({ length: size }, () => value(datatype) > 0);
  return Float64Array.from({ length: size }, () => value(datatype));
}

/** Whole ones are small enough to be the number of a class or a token. */
function random(datatype) {
  if (datatype === "BOOL") return Math.round(Math.random());
  return isFraction(datatype) ? Math.fround(Math.random()) : Math.floor(Math.random() * 10);
}
