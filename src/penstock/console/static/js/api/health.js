// The health of the platform's components.

import { request, SERVICE_UNAVAILABLE } from "../api.js";

/** A platform that cannot take messages answers 503, with the usual body. */
export const fetchHealth = (signal) => request("/health", { signal, accepts: [SERVICE_UNAVAILABLE] });
