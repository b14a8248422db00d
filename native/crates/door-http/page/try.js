// One model: a form for its inputs, its answer, and the same request for curl and Python.

import { ask, json } from "./api.js";
import { bar } from "./bar.js";
import { inCurl, inPython } from "./code.js";
import { copyButton, failure, make, milliseconds, saveButton, slow } from "./dom.js";
import { Field } from "./field.js";
import { outputElement } from "./outputs.js";
import { encode, isInJson, readResponse, withBinary } from "./tensors.js";

const MOST_IN_JSON = 1000;
const TIMINGS = "kushi-timings";
let latest;

export async function showTry(section, model, version) {
  const mine = (latest = Symbol(model));
  const path = `/v2/models/${encodeURIComponent(model)}${version ? `/versions/${version}` : ""}`;
  section.replaceChildren(make("h2", {}, model), make("p", { role: "status" }, "Looking at its inputs …"));
  try {
    const about = await json(path);
    const config = await json(`${path}/config`, { patient: false }).catch(() => ({}));
    if (latest === mine) section.replaceChildren(...form(path, about, config));
  } catch (error) {
    if (latest === mine) section.replaceChildren(make("h2", {}, model), failure(error));
  }
}

function form(path, about, config) {
  const optional = new Set((config.input ?? []).filter((input) => input.optional).map((input) => input.name));
  const isBatched = (config.max_batch_size ?? 0) > 0;
  const fields = about.inputs.map((input) => new Field(input, { isOptional: optional.has(input.name) }));
  const answer = make("div", { className: "answer" });
  const fail = (error) => answer.replaceChildren(failure(error));
  const send = slow("Send", () => sendForm(path, about, fields, answer), fail);
  const facts = [about.platform, ...(isBatched ? [`batches of up to ${config.max_batch_size}`] : [])];
  const outputs = about.outputs.map((output) => `${output.name} ${output.datatype} [${output.shape.join(", ")}]`);
  return [
    make("p", {}, make("a", { href: "#models" }, "All models")),
    make("h2", {}, about.name),
    make("p", { className: "quiet" }, facts.filter(Boolean).join(", ")),
    make("p", { className: "quiet" }, outputs.length ? `It answers ${outputs.join("; ")}.` : "It answers nothing."),
    make("form", { onsubmit: (event) => { event.preventDefault(); send.click(); } },
      ...fields.map((field) => field.element), make("p", {}, send)),
    answer,
  ];
}

async function sendForm(path, about, fields, answer) {
  const inputs = (await Promise.all(fields.map((field) => field.value()))).filter(Boolean);
  const [head, pieces] = inputs.every(fitsIntoJson) ? [inJson(inputs), []] : asBytes(inputs);
  const request = withBinary(asksForBytes(head), pieces);
  answer.replaceChildren(make("p", { role: "status" }, "Waiting for the answer …"));
  const began = performance.now();
  const response = await ask(`${path}/infer`, {
    method: "POST", ...request, headers: { ...request.headers, [TIMINGS]: "true" },
  });
  const took = performance.now() - began;
  const found = await readResponse(response);
  const body = withBinary(head, pieces);
  const url = `${location.origin}${path}/infer`;
  answer.replaceChildren(
    make("p", { role: "status" }, `Answered by version ${found.model_version} in ${milliseconds(took)}.`),
    ...timeBar(response.headers.get(TIMINGS), took),
    ...(found.outputs ?? []).map(outputElement),
    code("curl", inCurl(url, head, pieces.length > 0),
      pieces.length ? [saveButton("Save request.bin", "request.bin", body.body)] : []),
    code("Python", inPython(about.name, path, inputs), []));
}

const fitsIntoJson = ({ values, datatype, hasBytes }) => (
  values.length <= MOST_IN_JSON && isInJson(datatype) && !hasBytes);

/** Where the time went, which the server says in nanoseconds; what is left is the way there and back. */
function timeBar(timings, took) {
  if (!timings) return [];
  const [queue, input, infer, output] = timings.split(",").map((ns) => Number(ns) / 1e6);
  const rest = Math.max(0, took - queue - input - infer - output);
  const names = ["queue", "inputs", "model", "outputs", "way there and back"];
  const times = [queue, input, infer, output, rest];
  return [bar("Time of the request", names.map((name, place) => [name, times[place]]))];
}

const described = ({ name, datatype, shape }) => ({ name, datatype, shape });

/** Data is written by hand: numbers of 64 bits stay what they are. */
function inJson(inputs) {
  const tensors = inputs.map((input) => {
    const text = (value) => (typeof value === "string" ? JSON.stringify(value) : String(value));
    const values = Array.from(input.values, text);
    return `${JSON.stringify(described(input)).slice(0, -1)},"data":[${values.join(",")}]}`;
  });
  return `{"inputs":[${tensors.join(",")}]}`;
}

function asBytes(inputs) {
  const pieces = inputs.map((input) => encode(input.datatype, input.values));
  const tensors = inputs.map((input, place) => (
    { ...described(input), parameters: { binary_data_size: pieces[place].length } }));
  return [JSON.stringify({ inputs: tensors }), pieces];
}

const asksForBytes = (head) => `{"parameters":{"binary_data_output":true},${head.slice(1)}`;

function code(language, text, more) {
  return make("details", {}, make("summary", {}, `The same with ${language}`),
    make("pre", { tabIndex: 0 }, make("code", {}, text)), make("p", {}, copyButton("Copy", () => text), " ", ...more));
}
