// An image to classify -> pixels [1,C,H,W], as in training.

import {DataError} from "./errors.js";
import {Tensor} from "./tensor.js";

/**
 * @param {object} image pixels row by row, the channels of a pixel next to each other, as in the ImageData of a canvas:
 *   {data or pixels, width, height, channels}. Bytes, or floats from 0 (black) to 1 (white). Without `channels`, they
 *   are counted. Bytes of a color image (3 channels, or 4 with alpha) become grey, or lose alpha, if the model reads
 *   that.
 * @param settings of the model
 * @returns {Tensor}
 */
export function pixelsOf(image, {channels: C, imageSize: size}) {
  const pixels = image?.pixels ?? image?.data, {width, height} = image ?? {};
  const isBytes = pixels instanceof Uint8Array || pixels instanceof Uint8ClampedArray;
  if (!isBytes && !Array.isArray(pixels) && !(pixels instanceof Float32Array) && !(pixels instanceof Float64Array)) {
    throw new DataError("this model classifies images. Expected {pixels, width, height, channels}: pixels are a "
      + "Uint8Array from 0 to 255, or floats from 0 to 1.");
  }
  const given = image.channels ?? pixels.length / (width * height), isConverted = isBytes && canConvert(given, C);
  if (width !== size || height !== size || pixels.length !== width * height * given || (given !== C && !isConverted)) {
    throw new DataError(`the image has ${width}×${height} pixels, ${given} channels and ${pixels.length} numbers; `
      + `this model reads ${size}×${size} pixels with ${C} channels. Scale it to that size first.`);
  }
  if (!isBytes && !pixels.every((x) => x >= 0 && x <= 1)) {
    throw new DataError("the image has pixels below 0 or above 1. Expected a Uint8Array from 0 to 255, or floats from "
      + "0 to 1.");
  }
  const x = new Tensor([1, C, size, size]);
  for (let i = 0; i < size * size; i++) for (let c = 0; c < C; c++) {
    const value = C === 1 && given > 1 ? grey(pixels, i * given) : pixels[i * given + c];
    x.data[c * size * size + i] = isBytes ? value / 255 : value;
  }
  return x;
}

function canConvert(given, needed) {
  return (needed === 1 && (given === 3 || given === 4)) || (needed === 3 && given === 4);
}

/** ITU-R 601-2 luma, rounded as in Pillow. */
function grey(bytes, at) {
  return (bytes[at] * 19595 + bytes[at + 1] * 38470 + bytes[at + 2] * 7471 + 0x8000) >> 16;
}
