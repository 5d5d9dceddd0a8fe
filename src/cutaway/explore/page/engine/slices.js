// A computation in slices, so that other work runs in between: the page's events, or a message to stop.

export const SLICE = 10; // milliseconds

export class Slices {
  /** @param {AbortSignal | undefined} signal stops the computation at the next step */
  constructor(signal) {
    this.signal = signal;
    this.start = performance.now();
    signal?.throwIfAborted();
  }

  /** Wait if the slice has taken long enough. Throws if the computation was stopped. */
  async rest() {
    if (performance.now() - this.start > SLICE) await this.next();
  }

  /** Begin the next slice. */
  async next() {
    await otherWork();
    this.signal?.throwIfAborted();
    this.start = performance.now();
  }
}

/** Wait for the events that are due. A timer would wait longer: 4 ms, or a second in a page that is not visible. */
export function otherWork() {
  return new Promise((resolve) => {
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
