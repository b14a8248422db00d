// A picture as the tensor that a model takes.

import { isFraction } from "./tensors.js";

const IMAGENET = { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

/** How pixels become numbers: (pixel / 255 - mean) / std, times `scale`. */
export const PICTURES = [
  { label: "from 0 to 1" },
  { label: "from -1 to 1", mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] },
  { label: "from 0 to 255", scale: 255 },
  { label: "as for ImageNet", ...IMAGENET },
];

/** The place of the range that pixels have as whole numbers. */
export const WHOLE = 2;

/** Where height, width and channels stand in a shape of pictures; undefined in another one. */
export function layoutOf(shape) {
  const isChannels = (size) => size === 1 || size === 3;
  const [first, middle, last] = shape.slice(-3);
  const before = shape.length - 3;
  if (before < 0 || before > 1) return undefined;
  const isSide = (size) => size < 0 || size >= 8;
  const places = [before, before + 1, before + 2];
  if (isChannels(first) && isSide(middle) && isSide(last)) return layout(...places);
  if (isChannels(last) && isSide(first) && isSide(middle)) return layout(places[2], places[0], places[1]);
  return undefined;
}

const layout = (channels, height, width) => ({ channels, height, width });

/** The same picture for each row of the batch. */
export async function pixels(file, layout, shape, { mean, std, scale = 1 }, datatype) {
  const [height, width, channels] = [shape[layout.height], shape[layout.width], shape[layout.channels]];
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is no picture that this browser can read`);
  });
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const value = (place, channel) => {
    const pixel = channels === 1
      ? (0.299 * data[place] + 0.587 * data[place + 1] + 0.114 * data[place + 2]) / 255
      : data[place + channel] / 255;
    return scale * (mean ? (pixel - mean[channel]) / std[channel] : pixel);
  };
  const isWhole = !isFraction(datatype);
  const isFirst = layout.channels < layout.height;
  const one = new Array(height * width * channels);
  for (let place = 0; place < height * width; place += 1) {
    for (let channel = 0; channel < channels; channel += 1) {
      const found = value(4 * place, channel);
      const at = isFirst ? channel * height * width + place : channels * place + channel;
      one[at] = isWhole ? Math.round(found) : found;
    }
  }
  const rows = shape.length > 3 ? shape[0] : 1;
  return { shape, values: rows === 1 ? one : Array.from({ length: rows }, () => one).flat() };
}
