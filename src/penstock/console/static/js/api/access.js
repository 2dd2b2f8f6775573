// Calls about access: tokens, environments, quotas and the audit log.

import { problemOf, request, requestHeaders, withQuery } from "../api.js";

const tokenPath = (id) => `/api/v1/tokens/${encodeURIComponent(id)}`;
const environmentPath = (name) => `/api/v1/environments/${name.split("/").map(encodeURIComponent).join("/")}`;

export const fetchTokens = (params, signal) => request("/api/v1/tokens", { params, signal });
export const createToken = (body) => request("/api/v1/tokens", { method: "POST", body });
export const rotateToken = (id, overlapS) => request(`${tokenPath(id)}/rotate`, { method: "POST", body: { overlapS } });
export const revokeToken = (id) => request(tokenPath(id), { method: "DELETE" });

export const fetchEnvironments = (params, signal) => request("/api/v1/environments", { params, signal });
export const fetchEnvironment = (name, signal) => request(environmentPath(name), { signal });
export const createEnvironment = (body) => request("/api/v1/environments", { method: "POST", body });
export const setEnvironmentQuotas = (name, quotas) => request(environmentPath(name), { method: "PUT", body: { quotas } });
export const deleteEnvironment = (name) => request(environmentPath(name), { method: "DELETE" });

export const fetchQuotas = (signal) => request("/api/v1/quotas", { signal });

export const fetchAuditEntries = (params, signal) => request("/api/v1/audit", { params, signal });

/** Return all entries that match as a file of JSON lines. A link could not name the selected environment. */
export async function exportAuditEntries(params) {
  const response = await fetch(withQuery("/api/v1/audit/export", params), { headers: requestHeaders() });
  if (!response.ok) throw problemOf(response, await response.json());
  return response.blob();
}
