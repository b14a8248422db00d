// All models, live: one request a second while the view is shown.

import { askForToken, json } from "./api.js";
import { button, draw, failure, make, milliseconds, number } from "./dom.js";
import { since, statistics } from "./statistics.js";

const LOOK_MS = 1000;
const LATE_MS = 10_000;
const INDEX_EVERY = 5; // looks: the states of models change seldom
const KEPT = 60;

const cards = new Map();
let timer;
let looks = 0;
let before;
let asking;
let list;
let empty;
let note;

export function showModels(section) {
  if (!list) {
    note = make("div");
    list = make("div", { className: "cards" });
    empty = make("p", { className: "quiet", hidden: true }, "The repository is empty.");
    section.append(note, empty, list);
  }
  stopModels();
  look();
}

export function stopModels() {
  clearTimeout(timer);
  asking?.abort();
  asking = before = undefined;
}

/** One after the other, however long the server takes. */
async function look() {
  const mine = (asking = new AbortController());
  const late = setTimeout(() => mine.abort(), LATE_MS);
  const goesOn = document.hidden || (await lookOnce(mine.signal));
  clearTimeout(late);
  if (document.hidden) before = undefined;
  if (asking === mine && goesOn) timer = setTimeout(look, LOOK_MS);
}

/** Whether there is something to look at again. */
async function lookOnce(signal) {
  try {
    // one of five looks is for the states
    if (looks % INDEX_EVERY === 0) {
      showStates(await json("/v2/repository/index", { method: "POST", patient: false, signal }));
    } else {
      showCounts(await statistics({ signal }));
    }
    looks += 1;
    say();
    return true;
  } catch (error) {
    before = undefined;
    if (asking?.signal !== signal) return false;
    say(error.name === "AbortError" ? "The server takes long to answer." : error.message);
    if (!error.header) return true;
    // what was shown may be nothing to see without it
    list.replaceChildren();
    cards.clear();
    looks = 0;
    note.append(button("Enter the token", async () => { if (await askForToken(error)) look(); }));
    return false;
  }
}

/** What is wrong now, said once: a screen reader would say it each second. */
function say(text = "") {
  if (note.dataset.said === text) return;
  note.dataset.said = text;
  note.replaceChildren(...(text ? [failure({ message: text })] : []));
}

function showStates(index) {
  const found = new Set();
  for (const { name, version = "", state = "", reason = "" } of index) {
    const key = `${name}/${version}`;
    found.add(key);
    if (!cards.has(key)) {
      cards.set(key, new Card(name, version));
      list.append(cards.get(key).element);
    }
    cards.get(key).showState(state || "not loaded", reason);
  }
  for (const [key, card] of cards) {
    if (!found.has(key)) {
      card.element.remove();
      cards.delete(key);
    }
  }
  empty.hidden = index.length > 0;
}

function showCounts(now) {
  const seconds = before ? (performance.now() - before.at) / 1000 : 0;
  for (const grown of before ? since(before.counts, now) : []) {
    cards.get(`${grown.name}/${grown.version}`)?.showCounts(grown, now.get(`${grown.name}/${grown.version}`), seconds);
  }
  before = { counts: now, at: performance.now() };
}

class Card {
  #rates = [];
  #latencies = [];

  constructor(name, version) {
    const place = `#models/${encodeURIComponent(name)}/${encodeURIComponent(version)}`;
    this.state = make("span", { className: "badge" });
    this.reason = make("p", { className: "failure", hidden: true });
    this.rate = new Line("Requests a second");
    this.latency = new Line("Time of a request");
    this.values = {};
    const facts = make("dl");
    for (const fact of ["Queue", "Compute", "Batch", "Answered", "Failed"]) {
      this.values[fact] = make("dd", {}, "–");
      facts.append(make("div", {}, make("dt", {}, fact), this.values[fact]));
    }
    this.element = make("article", { className: "card" },
      make("h2", {}, make("a", { href: place }, name), " ", make("small", {}, version && `version ${version}`)),
      this.state, this.reason, this.rate.element, this.latency.element, facts);
  }

  showState(state, reason) {
    this.state.textContent = state.toLowerCase();
    this.state.classList.toggle("ready", state === "READY");
    this.reason.textContent = reason;
    this.reason.hidden = !reason || state === "READY";
  }

  showCounts(grown, whole, seconds) {
    const { requests, runs } = grown;
    push(this.#rates, requests / seconds);
    push(this.#latencies, requests ? grown.tookMs / requests : undefined);
    this.rate.show(this.#rates, number(requests / seconds));
    this.latency.show(this.#latencies, requests ? milliseconds(grown.tookMs / requests) : "–");
    // where nothing happens now, what happened since the start
    const of = requests && runs ? grown : whole;
    const facts = {
      Queue: of.requests ? milliseconds(of.queueMs / of.requests) : "–",
      Compute: of.requests ? milliseconds(of.computeMs / of.requests) : "–",
      Batch: of.runs ? batch(of.rows / of.runs, Math.max(...whole.batches.keys(), 1)) : "–",
      Answered: number(whole.requests),
      Failed: number(whole.failures),
    };
    for (const [name, text] of Object.entries(facts)) this.values[name].textContent = text;
  }
}

const batch = (usual, most) => (most > 1 ? `${number(usual)}, up to ${most}` : "1");

/** A figure over the last minute or so. */
class Line {
  constructor(label) {
    this.path = draw("path", {});
    this.value = make("strong", {}, "–");
    this.element = make("p", { className: "line" }, make("span", {}, label), this.value,
      draw("svg", { viewBox: "0 0 120 24", preserveAspectRatio: "none", "aria-hidden": "true" }, this.path));
  }

  show(values, text) {
    this.value.textContent = text;
    const most = Math.max(...values.filter((value) => value !== undefined), 1e-9);
    let pen = "M";
    let path = "";
    values.forEach((value, place) => {
      if (value === undefined) pen = "M";
      else {
        path += `${pen}${(120 * (place + KEPT - values.length)) / (KEPT - 1)} ${22 - (20 * value) / most}`;
        pen = "L";
      }
    });
    this.path.setAttribute("d", path);
  }
}

function push(values, value) {
  values.push(value);
  if (values.length > KEPT) values.shift();
}
