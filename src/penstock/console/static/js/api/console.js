// The documents of the console: the overview and the list of queues. Streams repeat them when they change.

import { withQuery } from "../api.js";

/** Return the URL of a live stream: `topic` is "overview", "queues" or "queue". */
export const liveUrl = (topic, params = {}) => withQuery("/api/v1/live", { topic, ...params });
