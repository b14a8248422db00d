// Values of tensors as bytes, and requests and responses that carry some behind their JSON.

const HEAD = "Inference-Header-Content-Length";

const ARRAYS = {
  BOOL: Uint8Array, UINT8: Uint8Array, INT8: Int8Array, UINT16: Uint16Array, INT16: Int16Array, UINT32: Uint32Array,
  INT32: Int32Array, UINT64: BigUint64Array, INT64: BigInt64Array, FP32: Float32Array, FP64: Float64Array,
  FP16: Uint16Array, BF16: Uint16Array,
};

export const isText = (datatype) => datatype === "BYTES";
/** Whether a whole number is one of this type. */
export function fits(datatype, value) {
  const bits = Number(/\d+$/.exec(datatype)[0]);
  return (datatype.startsWith("U") ? BigInt.asUintN(bits, value) : BigInt.asIntN(bits, value)) === value;
}

export const isFraction = (datatype) => /^(FP|BF)/.test(datatype);
/** The protocol has no numbers of 16 bits in JSON. */
export const isInJson = (datatype) => datatype !== "FP16" && datatype !== "BF16";
export const isKnown = (datatype) => isText(datatype) || datatype in ARRAYS;

/** `values`: numbers, strings, or the Uint8Array of an element. */
export function encode(datatype, values) {
  if (isText(datatype)) return encodeTexts(values);
  const convert = { FP16: toHalf, BF16: (value) => bits(value) >>> 16 }[datatype] ?? (is64(datatype) ? BigInt : Number);
  return new Uint8Array(ARRAYS[datatype].from(values, (value) => convert(value)).buffer);
}

export function decode(datatype, bytes) {
  if (isText(datatype)) return decodeTexts(bytes);
  // a copy: what lies in a response may lie askew
  const array = new ARRAYS[datatype](bytes.slice().buffer);
  if (datatype === "FP16") return Array.from(array, fromHalf);
  if (datatype === "BF16") return Array.from(array, (value) => fraction(value << 16));
  return datatype === "BOOL" ? Array.from(array, Boolean) : array;
}

/** What `ask` takes for a JSON object and the bytes behind it. */
export function withBinary(head, pieces) {
  const text = new TextEncoder().encode(typeof head === "string" ? head : JSON.stringify(head));
  const headers = pieces.length ? { [HEAD]: String(text.length) } : { "Content-Type": "application/json" };
  return { headers, body: new Blob([text, ...pieces]) };
}

/** The JSON of a response; outputs that came as bytes have their `values`. */
export async function readResponse(response) {
  const bytes = new Uint8Array(await response.arrayBuffer());
  let at = Number(response.headers.get(HEAD) ?? bytes.length);
  const found = JSON.parse(new TextDecoder().decode(bytes.subarray(0, at)));
  for (const output of found.outputs ?? []) {
    const size = output.parameters?.binary_data_size;
    if (size === undefined) {
      output.values = (output.data ?? []).flat(Infinity);
    } else {
      output.values = decode(output.datatype, bytes.subarray(at, at + size));
      at += size;
    }
  }
  return found;
}

const is64 = (datatype) => datatype === "INT64" || datatype === "UINT64";

function encodeTexts(values) {
  const elements = values.map((value) => (value instanceof Uint8Array ? value : new TextEncoder().encode(value)));
  const made = new Uint8Array(elements.reduce((sum, element) => sum + 4 + element.length, 0));
  const view = new DataView(made.buffer);
  let at = 0;
  for (const element of elements) {
    view.setUint32(at, element.length, true);
    made.set(element, at + 4);
    at += 4 + element.length;
  }
  return made;
}

function decodeTexts(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const decoder = new TextDecoder();
  const found = [];
  for (let at = 0; at + 4 <= bytes.length;) {
    const length = view.getUint32(at, true);
    found.push(decoder.decode(bytes.subarray(at + 4, at + 4 + length)));
    at += 4 + length;
  }
  return found;
}

const FLOATS = new Float32Array(1);
const BITS = new Uint32Array(FLOATS.buffer);

function bits(value) {
  FLOATS[0] = Number(value);
  return BITS[0];
}

function fraction(value) {
  BITS[0] = value;
  return FLOATS[0];
}

function toHalf(value) {
  const whole = bits(value);
  const sign = (whole >>> 16) & 0x8000;
  const size = Math.abs(FLOATS[0]);
  if (Number.isNaN(size)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | roundEven(size * 2 ** 24);
  const exponent = ((whole >>> 23) & 0xff) - 127;
  // one that is rounded up to the next power of two carries into the exponent, as it should
  return sign | (((exponent + 15) << 10) + roundEven((size / 2 ** exponent - 1) * 1024));
}

function roundEven(value) {
  const down = Math.floor(value);
  const rest = value - down;
  return rest > 0.5 || (rest === 0.5 && down % 2) ? down + 1 : down;
}

function fromHalf(value) {
  const sign = value & 0x8000 ? -1 : 1;
  const exponent = (value >> 10) & 31;
  const rest = value & 1023;
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
}
