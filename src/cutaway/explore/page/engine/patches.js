// From pixels to vectors: an image is split into patches, which serve as tokens.

import {DataError} from "./errors.js";
import {Linear, Module, Parameter} from "./modules.js";
import {Probe} from "./probe.js";
import {Tensor} from "./tensor.js";

/**
 * Patches of P×P pixels as tokens (ViT, Dosovitskiy et al. 2021).    [B,C,H,W] -> [B,N,D]
 *
 * ┌──┬──┐
 * │ 0│ 1│      N = H/P · W/P patches, row by row. Each is flattened (C·P·P numbers) and projected to D.
 * ├──┼──┤      With `hasClassToken`, a learned vector comes first; a head can read the class there.
 * │ 2│ 3│
 * └──┴──┘
 */
export class PatchEmbedding extends Module {
  constructor({imageSize, patchSize, channels, dModel, position, hasClassToken}) {
    super();
    Object.assign(this, {imageSize, patchSize, channels});
    this.project = new Linear(channels * patchSize ** 2, dModel);
    this.classToken = hasClassToken ? new Parameter(1, dModel) : null;
    this.position = position;
    this.embedded = new Probe();
  }

  /** @param {Tensor} images [B,C,H,W], pixels from 0 (black) to 1 (white) */
  forward(images) {
    this.check(images);
    let x_BND = this.project.forward(this.patches(images));
    if (this.classToken) x_BND = prepend(this.classToken.data, x_BND);
    return this.embedded.forward(this.position.embed(x_BND, 0));
  }

  /** [B,C,H,W] -> [B,N,C·P·P] */
  patches(images) {
    const [B, C, H, W] = images.shape, P = this.patchSize;
    const patches = new Tensor([B, H / P * W / P, C * P * P]);
    let at = 0;
    for (let b = 0; b < B; b++) for (let top = 0; top < H; top += P) for (let left = 0; left < W; left += P) {
      for (let c = 0; c < C; c++) for (let y = top; y < top + P; y++) for (let x = left; x < left + P; x++) {
        patches.data[at++] = images.data[((b * C + c) * H + y) * W + x];
      }
    }
    return patches;
  }

  check(images) {
    const expected = [this.channels, this.imageSize, this.imageSize];
    if (String(images.shape.slice(1)) !== String(expected)) {
      throw new DataError(`the images have shape [${images.shape}]; this model expects [batch,${expected}]. `
        + "Resize them first.");
    }
  }
}

/** A vector [D] before those of each image.    [B,N,D] -> [B,N+1,D] */
function prepend(vector_D, x_BND) {
  const [B, N, D] = x_BND.shape, y = new Tensor([B, N + 1, D]);
  for (let b = 0; b < B; b++) {
    y.matrix(b).set(vector_D);
    y.matrix(b).set(x_BND.matrix(b), D);
  }
  return y;
}
