// Deferred operations and lanes, the load of the broker, and the maintenance of PostgreSQL.

import { request } from "../api.js";

export const fetchOperations = (params, signal) => request("/api/v1/operations", { params, signal });

export const fetchOperationStats = (signal) => request("/api/v1/operations/stats", { signal });

export const fetchLanes = (signal) => request("/api/v1/operations/lanes", { signal });

export const retryOperation = (id) => request(`/api/v1/operations/${id}/retry`, { method: "POST" });

export const deleteOperation = (id) => request(`/api/v1/operations/${id}`, { method: "DELETE" });

/** Fetch what holds back vacuum for longer than PENSTOCK_HORIZON_S. */
export const fetchVacuumHorizon = (signal) => request("/api/v1/status/horizon", { signal });

export const fetchReconciliation = (signal) => request("/api/v1/status/reconciliation", { signal });
