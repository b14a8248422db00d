// Asks the server. What it refuses becomes a Failure, in words. A token that it asks for is asked of the reader.

import { byId } from "./dom.js";

const KEPT = "kushi-tokens";
const tokens = new Map(JSON.parse(sessionStorage.getItem(KEPT) ?? "[]"));
let asking;

export class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }

  /** The header that the server expects a token in; undefined where it expects none. */
  get header() {
    return /expecting header '([^']+)'/.exec(this.message)?.[1];
  }
}

/** The response, if its status is 200. With `patient: false` nobody is asked for a token. */
export async function ask(path, { patient = true, headers = {}, ...given } = {}) {
  while (true) {
    try {
      return await askOnce(path, { ...given, headers: { ...headers, ...Object.fromEntries(tokens) } });
    } catch (error) {
      if (!patient || !error.header || !(await askForToken(error))) throw error;
    }
  }
}

/** The headers that carry tokens, by their names. */
export const tokenHeaders = () => [...tokens.keys()];

export const json = async (path, given) => (await ask(path, given)).json();

/** Asks the reader for the token that a refusal names; whether there is one now. */
export async function askForToken(refusal) {
  asking ??= showDialog(refusal).finally(() => { asking = undefined; });
  return asking;
}

async function askOnce(path, given) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...given });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server does not answer. It may have ended, or the network may be away.");
  }
  if (response.ok) return response;
  throw new Failure(await reason(response), response.status);
}

async function reason(response) {
  const text = await response.text().catch(() => "");
  let said = text;
  try {
    said = JSON.parse(text).error ?? text;
  } catch {
    // it is no JSON: the text itself says what is wrong
  }
  const again = response.headers.has("retry-after") ? "; another try may succeed" : "";
  return `${said || "The server answered with an error."} (${response.status}${again})`;
}

function showDialog(refusal) {
  const dialog = byId("tokens");
  const known = tokens.has(refusal.header);
  byId("tokens-why").textContent = known ? "The server does not take this token." : refusal.message;
  byId("tokens-header").textContent = refusal.header;
  byId("tokens-value").value = "";
  dialog.returnValue = "";
  return new Promise((done) => {
    byId("tokens-cancel").onclick = () => dialog.close();
    dialog.querySelector("form").onsubmit = (event) => {
      if (canBeSent(refusal.header, byId("tokens-value").value)) {
        dialog.returnValue = "given";
        return;
      }
      event.preventDefault();
      byId("tokens-why").textContent = "This token cannot be sent: it has letters that headers of HTTP do not take.";
    };
    dialog.onclose = () => {
      if (dialog.returnValue === "") return done(false);
      tokens.set(refusal.header, byId("tokens-value").value);
      sessionStorage.setItem(KEPT, JSON.stringify([...tokens]));
      return done(true);
    };
    dialog.showModal();
  });
}

function canBeSent(name, value) {
  try {
    return new Headers([[name, value]]).has(name);
  } catch {
    return false;
  }
}
