// The health of the components, fetched once for all parts of the shell that show it.

import { fetchHealth } from "./api/health.js";
import { createContext, html, useContext } from "./html.js";
import { useData } from "./use_data.js";

const INTERVAL_MS = 3_000;
const HealthContext = createContext({ data: null, problem: null });

export function HealthProvider({ children }) {
  const state = useData(fetchHealth, [], { intervalMs: INTERVAL_MS });
  return html`<${HealthContext.Provider} value=${state}>${children}<//>`;
}

/** Return `data`, the health, and `problem` if it cannot be read. */
export const useHealth = () => useContext(HealthContext);

/** Return one line for each component that is not up. */
export function describeProblems(health) {
  const failed = Object.entries(health?.parts ?? {}).filter(([, { status }]) => status !== "up");
  return failed.map(([name, { status, detail }]) => `${name}: ${detail ?? status}`);
}
