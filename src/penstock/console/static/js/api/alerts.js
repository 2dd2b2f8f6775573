// Calls of the alerts API: rules, incidents, notices, channels and silences.

import { request } from "../api.js";

const BACKTEST_TIMEOUT_MS = 60_000;

const at = (path, id) => `/api/v1/${path}/${encodeURIComponent(id)}`;

export const fetchRules = (signal) => request("/api/v1/alert-rules", { signal });
export const fetchRule = (id, signal) => request(at("alert-rules", id), { signal });
export const fetchRuleTypes = (signal) => request("/api/v1/alert-rules/types", { signal });
export const createRule = (body) => request("/api/v1/alert-rules", { method: "POST", body });
export const replaceRule = (id, body) => request(at("alert-rules", id), { method: "PUT", body });
export const deleteRule = (id) => request(at("alert-rules", id), { method: "DELETE" });
export const createDefaultRules = (channels) => request("/api/v1/alert-rules/defaults", { method: "POST", body: { channels } });

/** Run a rule over the past. `body`: `{ rule, period | incidentId, atMost? }`. */
export const testRule = (body, signal) =>
  request("/api/v1/alert-rules/test", { method: "POST", body, signal, timeoutMs: BACKTEST_TIMEOUT_MS });

export const fetchIncidents = (params, signal) => request("/api/v1/incidents", { params, signal });
export const fetchIncident = (id, signal) => request(at("incidents", id), { signal });
export const acknowledgeIncident = (id, by) => request(`${at("incidents", id)}/acknowledge`, { method: "POST", body: { by } });
export const addIncidentNote = (id, note) => request(`${at("incidents", id)}/notes`, { method: "POST", body: note });

export const fetchNotices = (params, signal) => request("/api/v1/alert-notices", { params, signal });
export const fetchNotice = (id, signal) => request(at("alert-notices", id), { signal });
export const retryNotice = (id) => request(`${at("alert-notices", id)}/retry`, { method: "POST" });

export const fetchChannels = (signal) => request("/api/v1/alert-channels", { signal });
export const createChannel = (body) => request("/api/v1/alert-channels", { method: "POST", body });
export const replaceChannel = (name, body) => request(at("alert-channels", name), { method: "PUT", body });
export const deleteChannel = (name) => request(at("alert-channels", name), { method: "DELETE" });
export const sendTestNotice = (name) => request(`${at("alert-channels", name)}/test`, { method: "POST" });

export const fetchSilences = (params, signal) => request("/api/v1/alert-silences", { params, signal });
export const createSilence = (body) => request("/api/v1/alert-silences", { method: "POST", body });
export const replaceSilence = (id, body) => request(at("alert-silences", id), { method: "PUT", body });
export const deleteSilence = (id) => request(at("alert-silences", id), { method: "DELETE" });
