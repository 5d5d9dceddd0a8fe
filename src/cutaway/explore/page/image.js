// The images that a vision model reads: [C][H][W] of 0 ... 1.

import {h} from "./dom.js";

/** A canvas with one pixel per value; style.css enlarges it. One channel is grey, three are red, green, blue. */
export function imageCanvas(pixels, label = "The image") {
  const [height, width] = [pixels[0].length, pixels[0][0].length];
  const canvas = h("canvas", {class: "image", width, height, role: "img", aria: {label}});
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = 4 * (y * width + x);
      for (let c = 0; c < 3; c++) image.data[at + c] = 255 * (pixels[c] ?? pixels[0])[y][x];
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
