// The load of processes as rows of a table, and the reasons of decisions as sentences.

export const DECISIONS = { execute: "Executed", spill: "Deferred", refuse: "Refused", journal: "Journaled" };

const REASONS = {
  calm: "the load is below its threshold",
  next_batch: "overloaded, but the next batch has room",
  switched_off: "load management is switched off",
  always_deferred: "the threshold is 0",
  sustained_overload: "the overload lasts too long to defer more",
  lanes_full: "the lanes are full",
  no_database: "PostgreSQL is unreachable",
  event_loop_lags: "the process has more to do than it can",
};

/** Say why a request that comes now is executed, deferred or refused. */
export function describeReason(reason, decision, depthLimit) {
  if (reason !== "busy") return REASONS[reason] ?? reason;
  if (decision === "spill") return "the load is above its threshold";
  return depthLimit ? "deferring would take too long" : "the load is above its threshold";
}

/** One row per kind of request and process; the kinds stay together. */
export function toLoadRows(workers, hasJournal) {
  const rows = workers.flatMap(({ worker, load, databaseOutageSeconds }) =>
    Object.entries(load.operations).map(([kind, figures]) => ({
      kind,
      worker,
      ...figures,
      ...(databaseOutageSeconds > 0 && decisionInOutage(kind, hasJournal)),
    })),
  );
  const kinds = Object.keys(workers[0].load.operations);
  return rows.sort((a, b) => kinds.indexOf(a.kind) - kinds.indexOf(b.kind) || a.worker - b.worker);
}

const decisionInOutage = (kind, hasJournal) => ({
  state: "no database",
  decision: kind === "push" && hasJournal ? "journal" : "refuse",
  reason: "no_database",
});
