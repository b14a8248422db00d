// Elements. What comes from the server becomes text, never HTML.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** `given`: properties, attributes (with a hyphen, or `role`, `for`) and listeners (`onclick`). */
export function make(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    if (name.includes("-") || name === "role" || name === "for" || name === "list") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

export function draw(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const button = (text, onclick, given = {}) => make("button", { type: "button", onclick, ...given }, text);

/** What a button does takes a while: it cannot be pressed meanwhile, and its failure is shown by `fail`. */
export function slow(text, act, fail, given = {}) {
  const made = button(text, async () => {
    made.disabled = true;
    try {
      await act(made);
    } catch (error) {
      fail(error);
    } finally {
      made.disabled = false;
    }
  }, given);
  return made;
}

export function failure(error) {
  return make("p", { className: "failure", role: "alert" }, error.message);
}

/** What may be wider than the page: it is scrolled by itself, with the keys as well. */
export function wide(label, ...children) {
  return make("div", { className: "wide", tabIndex: 0, role: "group", "aria-label": label }, ...children);
}

/** Has the browser save `data` as a file. */
export function save(name, data, type) {
  const url = URL.createObjectURL(data instanceof Blob ? data : new Blob([data], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function saveButton(label, name, data, type) {
  return button(label, () => save(name, data, type), { className: "second" });
}

export function copyButton(label, text) {
  const made = button(label, async () => {
    await copy(text());
    made.textContent = "Copied";
    setTimeout(() => { made.textContent = label; }, 1500);
  }, { className: "second" });
  return made;
}

/** Where the page came over plain HTTP from another host, browsers have no clipboard to offer. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = make("textarea", { value: text, className: "unseen" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** With three digits. */
export function number(value) {
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return value.toExponential(2);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : SHORT.format(value);
}

export function milliseconds(value) {
  return value >= 1000 ? `${SHORT.format(value / 1000)} s` : `${SHORT.format(value)} ms`;
}
