// Which view is shown, and what is known of the server.

import { askForToken, json } from "./api.js";
import { button, byId } from "./dom.js";
import { showModels, stopModels } from "./models.js";
import { showReader } from "./read.js";
import { findReader } from "./reader.js";
import { showTry } from "./try.js";

const USUAL_NAME = "triton"; // what clients of that server expect, unless --id says another one
const LATER_MS = 5000;
const VIEWS = ["read", "models", "try"];
let reader;

async function begin() {
  const server = byId("server");
  while (true) {
    try {
      const about = await json("/v2");
      server.textContent = `${about.name === USUAL_NAME ? "" : `${about.name}, `}version ${about.version}`;
      server.className = "";
      break;
    } catch (error) {
      server.className = "failure";
      server.textContent = error.message;
      if (error.header) {
        // without it nothing can be shown
        server.append(" ", button("Enter the token", async () => (await askForToken(error)) && location.reload()));
        return;
      }
      await new Promise((done) => setTimeout(done, LATER_MS));
    }
  }
  reader = await findReader();
  byId("to-read").hidden = !reader;
  addEventListener("hashchange", showAndFocus);
  show();
}

/** #read, #models, or #models/NAME/VERSION */
function show() {
  const [view, model, version = ""] = place();
  const wanted = view === "models" && model ? "try" : VIEWS.includes(view) ? view : reader ? "read" : "models";
  const shown = wanted === "read" && !reader ? "models" : wanted;
  for (const name of VIEWS) byId(name).hidden = name !== shown;
  for (const name of ["read", "models"]) {
    const isHere = shown === name || (name === "models" && shown === "try");
    byId(`to-${name}`).setAttribute("aria-current", isHere ? "page" : "false");
  }
  document.title = `Kushi: ${{ read: "read a document", models: "models", try: model }[shown]}`;
  if (shown === "models") showModels(byId("models"));
  else stopModels();
  if (shown === "read") showReader(byId("read"), reader);
  if (shown === "try") showTry(byId("try"), model, version);
}

/** What the address says; nothing where it cannot be read, or names what is no model. */
function place() {
  try {
    const [view, model, version] = location.hash.slice(1).split("/").map(decodeURIComponent);
    const isPlain = model !== "." && model !== ".." && /^[\w.-]*$/.test(version ?? "");
    return isPlain ? [view, model, version] : [view];
  } catch {
    return [""];
  }
}

/** Whoever reads with the keyboard goes on where the new view begins. */
function showAndFocus() {
  show();
  byId("main").focus();
}

byId("skip").addEventListener("click", (event) => {
  // it is no view
  event.preventDefault();
  byId("main").focus();
});
for (const kind of ["dragover", "drop"]) {
  // what misses its place does not take the place of this page
  addEventListener(kind, (event) => event.preventDefault());
}
begin();
