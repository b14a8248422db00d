// A document in, its words out: framed where they stand, and as text.

import { bar } from "./bar.js";
import {
  button, byId, copyButton, draw, failure, make, milliseconds, number, save, saveButton, slow, wide,
} from "./dom.js";
import { SAMPLES } from "./samples.js";
import { since, statistics } from "./statistics.js";

const UNSURE = 0.85;
const SOON_MS = 150;
const SHOWN_BY_BROWSERS = /^image\/(png|jpeg|webp|gif|avif|bmp)$/;
const STEPS = [["open", "opened"], ["find", "lines found"], ["read", "lines read"]];

let begun = false;
let running;

export function showReader(section, reader) {
  if (begun) return;
  begun = true;
  const file = make("input", {
    type: "file", id: "file", className: "unseen", accept: "image/*,.tif,.tiff,application/pdf",
    onchange: () => { if (file.files[0]) read(file.files[0]); file.value = ""; },
  });
  const drop = make("div", { id: "drop" },
    make("p", {},
      make("label", { className: "button", for: "file" }, "Choose a page or take a photograph"), file,
      " or drop it here, or paste it"),
    make("p", { className: "samples" },
      "Nothing at hand? ",
      ...SAMPLES.map(([name, made]) => button(name, async () => read(await made(), name), { className: "second" }))));
  const always = make("input", { type: "checkbox", id: "always" });
  section.append(drop,
    make("p", { className: "quiet" }, always, " ",
      make("label", { for: "always" }, "read PDFs as pictures, even if they contain text")),
    make("div", { id: "document" }));
  for (const kind of ["dragenter", "dragover"]) {
    section.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  section.addEventListener("dragleave", () => drop.classList.remove("over"));
  section.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]);
  });
  addEventListener("paste", (event) => {
    if (!section.hidden && event.clipboardData?.files[0]) read(event.clipboardData.files[0]);
  });

  async function read(document, name = document.name) {
    running?.abort();
    running = new AbortController();
    const { signal } = running;
    const shown = new Shown(document, name ?? "pasted", reader, always.checked ? "always" : "auto");
    byId("document").replaceChildren(shown.element);
    try {
      await shown.read(signal);
    } catch (error) {
      if (!signal.aborted) shown.fail(error);
    }
  }
}

/** One document, and what was read of it. */
class Shown {
  #pages = [];
  #seconds = [0, 0, 0];

  constructor(file, name, reader, ocr) {
    this.file = file;
    this.name = name;
    this.reader = reader;
    this.ocr = ocr;
    this.state = make("p", { role: "status", className: "state" }, "Reading …");
    this.failures = make("div");
    this.tools = make("div", { className: "tools" });
    this.times = make("div");
    this.list = make("div", { className: "pages" });
    const parts = [this.state, this.failures, this.tools, this.times, this.list];
    this.element = make("article", {}, make("h2", {}, name), ...parts);
  }

  fail(error) {
    this.state.textContent = this.#pages.length ? `Not read to its end: ${this.#count()}.` : "Not read.";
    this.failures.replaceChildren(failure(error));
  }

  async read(signal) {
    const began = performance.now();
    const before = await statistics().catch(() => undefined);
    const picture = SHOWN_BY_BROWSERS.test(this.file.type) ? URL.createObjectURL(this.file) : undefined;
    signal.addEventListener("abort", () => picture && URL.revokeObjectURL(picture));
    for await (const page of this.reader.pages(this.file, this.ocr, signal)) {
      this.#pages.push(page);
      this.list.append(pageElement(page, this.#pages.length === 1 ? picture : undefined));
      this.state.textContent = `Reading … ${this.#count()} so far.`;
      STEPS.forEach(([step], place) => { this.#seconds[place] += page.seconds?.[step] ?? 0; });
    }
    const took = performance.now() - began;
    this.state.textContent = `${this.#count()}, ${milliseconds(took)}.`;
    this.#showTools(signal);
    const after = before && (await statistics().catch(() => undefined));
    this.#showTimes(took, after ? since(before, after) : []);
  }

  get #text() {
    return this.#pages.map((page) => page.text).filter(Boolean).join("\n\n");
  }

  #count() {
    const words = this.#pages.flatMap((page) => page.lines).reduce((sum, line) => sum + line.words.length, 0);
    const pages = this.#pages.length;
    return `${number(pages)} ${pages === 1 ? "page" : "pages"}, ${number(words)} ${words === 1 ? "word" : "words"}`;
  }

  #showTools(signal) {
    const stem = this.name.replace(/\.[^.]*$/, "");
    const fail = (error) => signal.aborted || this.failures.replaceChildren(failure(error));
    const again = (label, file, made) => slow(label, async () => {
      const before = this.state.textContent;
      this.state.textContent = `Reading it again, for ${label} …`;
      try {
        save(file, await made(), "text/markdown");
      } finally {
        this.state.textContent = before;
      }
    }, fail, { className: "second" });
    const search = make("input", {
      type: "search", id: "search", placeholder: "Search",
      oninput: () => {
        clearTimeout(this.later);
        this.later = setTimeout(() => this.#search(search.value), SOON_MS);
      },
      onkeydown: (event) => { if (event.key === "Enter") this.#next(event.shiftKey ? -1 : 1); },
    });
    this.found = make("span", { role: "status", className: "quiet" });
    this.tools.append(
      make("label", { className: "unseen", for: "search" }, "Search in the words"), search, this.found,
      copyButton("Copy the text", () => this.#text), "Save as",
      saveButton("Text", `${stem}.txt`, this.#text, "text/plain"),
      again("Markdown", `${stem}.md`, () => this.reader.markdown(this.file, this.ocr, signal)));
    if (this.reader.pdf) {
      this.tools.append(again("Searchable PDF", `${stem}.pdf`, () => this.reader.pdf(this.file, this.ocr, signal)));
    }
    const all = JSON.stringify(this.#pages, undefined, 1);
    this.tools.append(saveButton("JSON", `${stem}.json`, all, "application/json"));
  }

  #search(wanted) {
    const sought = wanted.trim().toLowerCase().split(/\s+/).filter(Boolean);
    for (const shown of this.list.querySelectorAll("[data-word]")) {
      const text = (shown.dataset.word ?? "").toLowerCase();
      shown.classList.toggle("hit", sought.some((part) => text.includes(part)));
    }
    this.hits?.[this.place]?.classList.remove("current");
    this.hits = [...this.list.querySelectorAll("span.hit")];
    this.place = -1;
    this.found.textContent = sought.length ? `${number(this.hits.length)} found` : "";
    if (this.hits.length) this.#next(1);
  }

  #next(step) {
    if (!this.hits?.length) return;
    this.hits[this.place]?.classList.remove("current");
    this.place = (this.place + step + this.hits.length) % this.hits.length;
    this.hits[this.place].classList.add("current");
    this.hits[this.place].scrollIntoView({ block: "nearest" });
    this.found.textContent = `${this.place + 1} of ${number(this.hits.length)}`;
  }

  #showTimes(took, models) {
    const read = STEPS.map(([, name], place) => [name, this.#seconds[place] * 1000]).filter(([, time]) => time > 0);
    if (read.length) this.times.append(bar(this.#pages.length > 1 ? "Steps, of all pages together" : "Steps", read));
    const ran = models.filter((model) => model.runs > 0 && model.requests > 0);
    if (!ran.length) return;
    const rows = ran.map((model) => make("tr", {},
      make("th", { scope: "row" }, model.name),
      ...[number(model.requests), number(model.rows / model.runs), milliseconds(model.queueMs / model.requests),
        milliseconds(model.computeMs / model.requests)].map((text) => make("td", {}, text))));
    const head = ["Model", "Requests", "In a batch", "Queue", "Compute"];
    this.times.append(make("details", {},
      make("summary", {}, "What the models did meanwhile"),
      wide("Models", make("table", {},
        make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, ...rows)))));
  }
}

function pageElement(page, picture) {
  const words = page.lines.flatMap((line) => line.words);
  const over = draw("svg", { viewBox: `0 0 ${page.width} ${page.height}`, "aria-hidden": "true" });
  const text = make("div", { className: "text" });
  const figure = make("figure", { className: picture ? "" : "paper" }, over);
  if (picture) {
    const image = make("img", { src: picture, alt: `Page ${page.number}`, onload: () => URL.revokeObjectURL(picture) });
    figure.prepend(image);
  }
  figure.style.aspectRatio = `${page.width} / ${page.height}`;
  for (const line of page.lines) {
    const shown = make("p");
    for (const word of line.words) shown.append(wordElement(word, over, !picture), " ");
    text.append(shown);
  }
  if (words.some(({ confidence }) => confidence < UNSURE)) {
    text.append(make("p", { className: "quiet" }, "Words with a dotted line below are unsure."));
  }
  if (!words.length) text.append(make("p", { className: "quiet" }, "No words were found."));
  const from = page.source === "text" ? "its own text" : "its pixels";
  return make("section", { className: "page", "aria-label": `Page ${page.number}` },
    make("h3", {}, `Page ${page.number} `, make("small", {}, `read from ${from}`)), figure, text);
}

/** A word in the text; beside it its frame, which is marked with it. */
function wordElement(word, over, isWritten) {
  const isUnsure = word.confidence < UNSURE;
  const sure = `${Math.round(word.confidence * 100)} % sure`;
  const frame = draw("polygon", { points: word.corners.map((corner) => corner.join(",")).join(" ") });
  const text = make("span", { className: isUnsure ? "unsure" : "", title: sure }, word.text);
  frame.dataset.word = text.dataset.word = word.text;
  frame.append(draw("title", {}, `${word.text}: ${sure}`));
  over.append(frame);
  if (isWritten) over.append(written(word));
  for (const one of [frame, text]) {
    for (const [kind, isOver] of [["pointerenter", true], ["pointerleave", false]]) {
      one.addEventListener(kind, () => [frame, text].forEach((each) => each.classList.toggle("over", isOver)));
    }
  }
  return text;
}

/** The word itself, where the browser cannot show the page. */
function written(word) {
  const [[left, top], [right, rightTop], , [bottomLeft, bottom]] = word.corners;
  const angle = (Math.atan2(rightTop - top, right - left) * 180) / Math.PI;
  const height = Math.hypot(bottomLeft - left, bottom - top);
  return draw("text", {
    transform: `translate(${bottomLeft} ${bottom}) rotate(${angle}) translate(0 ${-0.2 * height})`,
    "font-size": 0.8 * height,
    textLength: Math.max(1, Math.hypot(right - left, rightTop - top)),
    lengthAdjust: "spacingAndGlyphs",
  }, word.text);
}
