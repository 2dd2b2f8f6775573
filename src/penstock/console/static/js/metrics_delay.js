// How far the metrics are behind, by the clock of the broker.

import { formatAge, formatTime } from "./format.js";
import { BEHIND_AFTER_S } from "./series.js";

const SECONDS_RESOLUTION = 5;

export class MetricsDelay {
  #knownUntilS = 0;
  #clockOffsetS = 0;
  #hasSeries = false;

  /** Note how complete a newly fetched series is. */
  update({ knownUntil, end }) {
    this.#hasSeries = true;
    this.#knownUntilS = Math.max(this.#knownUntilS, knownUntil);
    this.#clockOffsetS = end - Date.now() / 1_000;
  }

  /** Return for how long events have not been counted; null if no event has ever been counted. */
  get ageS() {
    return this.#knownUntilS ? Math.max(0, Date.now() / 1_000 + this.#clockOffsetS - this.#knownUntilS) : null;
  }

  /** Return a sentence that says since when the metrics are behind, or null if they are not. */
  describe() {
    const { ageS } = this;
    if (ageS === null) return this.#hasSeries ? "Metrics are behind: no event has been counted yet." : null;
    if (ageS < BEHIND_AFTER_S) return null;
    return `Metrics are behind since ${formatTime(this.#knownUntilS, SECONDS_RESOLUTION)} (${formatAge(ageS)}).`;
  }
}
