// The health of the platform's components.

import { request } from "../api.js";

const SERVICE_UNAVAILABLE = 503; // the status of a platform that cannot take messages; its body is the usual one

export const fetchHealth = (signal) => request("/health", { signal, accepts: [SERVICE_UNAVAILABLE] });
