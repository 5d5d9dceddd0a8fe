// The residual connection around each sub-layer, and where its norm is.
//
//     post (the paper)              pre (most models since 2019)        sandwich
//
//     x ──┬──▶ f ──▶ + ──▶ norm     x ──┬──▶ norm ──▶ f ──▶ +           x ──┬──▶ norm ──▶ f ──▶ norm ──▶ +
//         └──────────┘                  └───────────────────┘               └────────────────────────────┘
//
// With post-norm, the output of each layer is normed. With the others, no norm is on the residual path, and the stack
// needs a final norm. (Dropout is for training only, so it is not here.)

import {Module} from "./modules.js";
import {Probe} from "./probe.js";
import {add} from "./tensor.js";

/** The base class. Probes: `update`, the output of the sub-layer; `stream`, the residual stream after it. */
class Residual extends Module {
  static hasNormedOutput = false;

  constructor(makeNorm) {
    super();
    this.norm = makeNorm();
    this.update = new Probe();
    this.stream = new Probe();
  }
}

/** norm(x + f(x)) */
export class PostNorm extends Residual {
  static hasNormedOutput = true;

  forward(x, sublayer) {
    return this.stream.forward(this.norm.forward(add(x, this.update.forward(sublayer(x)))));
  }
}

/** x + f(norm(x)) */
export class PreNorm extends Residual {
  forward(x, sublayer) {
    return this.stream.forward(add(x, this.update.forward(sublayer(this.norm.forward(x)))));
  }
}

/** x + norm₂(f(norm(x))), which bounds the output of each sub-layer (CogView, Ding et al. 2021) */
export class SandwichNorm extends Residual {
  constructor(makeNorm) {
    super(makeNorm);
    this.normAfter = makeNorm();
  }

  forward(x, sublayer) {
    const update = this.normAfter.forward(sublayer(this.norm.forward(x)));
    return this.stream.forward(add(x, this.update.forward(update)));
  }
}
