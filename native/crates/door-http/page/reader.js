// Who reads documents here: the endpoints of the service on this port, or a model of the repository.

import { ask, json } from "./api.js";
import { withBinary } from "./tensors.js";

const MODEL = "reader";

/** undefined where nobody does. */
export async function findReader() {
  const service = await json("/docs.json", { patient: false }).catch(() => undefined);
  if (service?.paths?.["/read/stream"]) return new Service();
  const model = await json(`/v2/models/${MODEL}`, { patient: false }).catch(() => undefined);
  const names = (tensors) => (tensors ?? []).map((tensor) => tensor.name);
  if (names(model?.inputs).includes("document") && names(model?.outputs).includes("pages")) return new Model();
  return undefined;
}

class Service {
  /** The pages of a document, each as soon as it is read. */
  async *pages(file, ocr, signal) {
    const response = await this.#ask("/read/stream", file, ocr, signal);
    for await (const event of events(response.body)) {
      if (event.name === "error") throw new Error(JSON.parse(event.data).error ?? event.data);
      if (event.data) yield JSON.parse(event.data);
    }
  }

  async markdown(file, ocr, signal) {
    return (await this.#ask("/read/markdown", file, ocr, signal)).text();
  }

  async pdf(file, ocr, signal) {
    return (await this.#ask("/read/pdf", file, ocr, signal)).blob();
  }

  #ask(path, file, ocr, signal) {
    const body = new FormData();
    body.append("document", file, file.name ?? "document");
    body.append("ocr", ocr);
    return ask(path, { method: "POST", body, signal });
  }
}

class Model {
  async *pages(file, ocr, signal) {
    yield* (await this.#infer("pages", file, ocr, signal)).map((page) => JSON.parse(page));
  }

  async markdown(file, ocr, signal) {
    return (await this.#infer("markdown", file, ocr, signal))[0];
  }

  async #infer(output, file, ocr, signal) {
    const data = new Uint8Array(await file.arrayBuffer());
    const element = new Uint8Array(4 + data.length);
    new DataView(element.buffer).setUint32(0, data.length, true);
    element.set(data, 4);
    const document = { name: "document", datatype: "BYTES", shape: [1] };
    const inputs = [
      { ...document, parameters: { binary_data_size: element.length } },
      { name: "ocr", datatype: "BYTES", shape: [1], data: [ocr] },
    ];
    const request = withBinary({ inputs, outputs: [{ name: output }] }, [element]);
    return (await json(`/v2/models/${MODEL}/infer`, { method: "POST", signal, ...request })).outputs[0].data;
  }
}

/** Server-sent events of a response. */
async function* events(body) {
  const chunks = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (true) {
    const { value, done } = await chunks.read();
    text += value ?? "";
    const parts = text.split(/\r?\n\r?\n/);
    text = parts.pop();
    yield* parts.map(event);
    if (done) return;
  }
}

function event(text) {
  const found = { name: "message", data: "" };
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("data:")) found.data += line.slice(5).trimStart();
    if (line.startsWith("event:")) found.name = line.slice(6).trim();
  }
  return found;
}
