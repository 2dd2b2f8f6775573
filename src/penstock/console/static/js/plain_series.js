// Series of the broker's own measurements, as columns that a chart draws as they are.

const UNITS_S = { m: 60, h: 3_600, d: 86_400 };

/**
 * Return the columns of a response with `timeRange`, `interval` and `series`. `columns` has a function per name that reads a
 * value from a point. A point that no process covers is unknown; `isEmpty` says that all points are.
 */
export function toPlainSeries(response, columns) {
  const points = response.series;
  const isUnknown = points.map((point) => !point.coveredSeconds);
  const step = Number.parseInt(response.interval, 10) * UNITS_S[response.interval.at(-1)];
  const values = Object.entries(columns).map(([name, read]) => [name, points.map((point) => read(point) ?? null)]);
  return {
    isPlain: true,
    isBehind: false,
    isEmpty: isUnknown.every(Boolean),
    step,
    start: Date.parse(response.timeRange.from) / 1_000,
    end: Date.parse(response.timeRange.to) / 1_000,
    x: points.map((point) => Date.parse(point.timestamp) / 1_000),
    isUnknown,
    ...Object.fromEntries(values),
  };
}
