// The request that was just sent, for a shell and for Python.

import { tokenHeaders } from "./api.js";
import { isFraction } from "./tensors.js";

const NUMPY = {
  BOOL: "bool_", UINT8: "uint8", INT8: "int8", UINT16: "uint16", INT16: "int16", UINT32: "uint32", INT32: "int32",
  UINT64: "uint64", INT64: "int64", FP16: "float16", FP32: "float32", FP64: "float64", BF16: "float32",
  BYTES: "object_",
};

const TOKEN = "THE TOKEN"; // it is shown nowhere

export function inCurl(url, head, isBinary) {
  const parts = [`curl -s ${inShell(url)}`, ...tokenHeaders().map((name) => `-H ${inShell(`${name}: ${TOKEN}`)}`)];
  if (!isBinary) return [...parts, `-d ${inShell(head)}`].join(" ");
  const length = new TextEncoder().encode(head).length;
  const data = `-H 'Inference-Header-Content-Length: ${length}' --data-binary @request.bin`;
  return `# request.bin: the button below saves it\n${[...parts, data].join(" ")}`;
}

export function inPython(model, path, inputs) {
  const version = /\/versions\/([\w.-]+)$/.exec(path)?.[1];
  const isPicture = inputs.some((input) => input.kind === "picture");
  const lines = ["import numpy as np", "import tritonclient.http as http"];
  if (isPicture) lines.push("from PIL import Image, ImageOps");
  lines.push("", "inputs = []");
  for (const input of inputs) lines.push(...tensor(input));
  const secure = location.protocol === "https:" ? ", ssl=True" : "";
  const which = version ? `, model_version="${version}"` : "";
  const named = tokenHeaders().map((name) => `${literal(name)}: "${TOKEN}"`);
  const headers = named.length ? `, headers={${named.join(", ")}}` : "";
  if (inputs.some((input) => input.kind === "random")) lines.push("# other random numbers than those of the page");
  lines.push(
    `with http.InferenceServerClient("${location.host}"${secure}) as client:`,
    `    result = client.infer(${literal(model)}, inputs${which}${headers})`,
    "for output in result.get_response()[\"outputs\"]:",
    "    print(output[\"name\"], result.as_numpy(output[\"name\"]))");
  return lines.join("\n");
}

function tensor({ name, datatype, shape, values, kind, file, range }) {
  const type = `np.${NUMPY[datatype]}`;
  const sizes = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  return [
    ...(kind === "picture" ? picture(shape, file, range) : []),
    `array = ${array({ kind, file, values, type, sizes, isWhole: !isFraction(datatype) })}`,
    `inputs.append(http.InferInput(${literal(name)}, list(array.shape), "${datatype}"))`,
    "inputs[-1].set_data_from_numpy(array)",
  ];
}

function array({ kind, file, values, type, sizes, isWhole }) {
  switch (kind) {
    case "picture": return `np.broadcast_to(pixels, ${sizes}).astype(${type})`;
    case "file": return `np.array([open(${literal(file)}, "rb").read()], dtype=${type}).reshape${sizes}`;
    case "zeros": return `np.zeros(${sizes}, dtype=${type})`;
    case "random": {
      const most = type === "np.bool_" ? 2 : 10;
      return `np.random.${isWhole ? `randint(0, ${most}, ${sizes})` : `random(${sizes})`}.astype(${type})`;
    }
    default: return `np.array([${Array.from(values, item).join(", ")}], dtype=${type}).reshape${sizes}`;
  }
}

function picture(shape, file, { mean, std, scale = 1 }) {
  const sizes = shape.slice(-3);
  const isFirst = sizes[0] === 1 || sizes[0] === 3;
  const [height, width, channels] = isFirst ? [...sizes.slice(1), sizes[0]] : sizes;
  const lines = [
    `picture = ImageOps.exif_transpose(Image.open(${literal(file)}))`,
    `picture = picture.convert("${channels === 1 ? "L" : "RGB"}").resize((${width}, ${height}))`,
    `pixels = np.asarray(picture, np.float32).reshape(${height}, ${width}, ${channels}) / 255`,
  ];
  const list = (values) => `np.float32([${values.slice(0, channels).join(", ")}])`;
  if (mean) lines.push(`pixels = (pixels - ${list(mean)}) / ${list(std)}`);
  if (scale !== 1) lines.push(`pixels *= ${scale}`);
  if (isFirst) lines.push("pixels = pixels.transpose(2, 0, 1)");
  return lines;
}

function item(value) {
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "string" ? literal(value) : String(value);
}

/** A text as Python writes it. */
const literal = (text) => JSON.stringify(text);

const inShell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
