// The depth of a queue over the last minute, as the list of queues reported it.

const SPAN_MS = 60_000;
const MIN_SPAN_MS = 10_000; // a shorter time says little about the trend
const MAX_SPAN_MS = 75_000; // a hidden tab sends no requests; older depths are not from the last minute

export class DepthHistory {
  #samples = [];

  /** Add a depth that was read at `atMs`; null, an unknown depth, ends the history. */
  add(depth, atMs) {
    if (depth === null) this.#samples = [];
    else this.#samples.push({ depth, atMs });
    // Only the newest sample that is at least as old as the span is needed.
    while (this.#samples.length > 1 && atMs - this.#samples[1].atMs >= SPAN_MS) this.#samples.shift();
    if (this.#samples.length && atMs - this.#samples[0].atMs > MAX_SPAN_MS) this.#samples.shift();
  }

  /** Return the change from the oldest to the newest depth and the time between them, or null without both. */
  change() {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    const spanMs = first ? last.atMs - first.atMs : 0;
    return spanMs < MIN_SPAN_MS ? null : { amount: last.depth - first.depth, spanMs: Math.min(spanMs, SPAN_MS) };
  }
}
