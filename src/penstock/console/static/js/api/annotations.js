// Annotations: events that charts mark.

import { request } from "../api.js";

const PATH = "/api/v1/annotations";
const LIMIT = 200;

/** Fetch the annotations of a queue and of the whole environment between two times in milliseconds. */
export function fetchAnnotations(queue, fromMs, toMs, signal) {
  const params = { queue, from: new Date(fromMs).toISOString(), to: new Date(toMs).toISOString(), limit: LIMIT };
  return request(PATH, { params, signal });
}

export const addAnnotation = (annotation) => request(PATH, { method: "POST", body: annotation });

export const deleteAnnotation = (id) => request(`${PATH}/${id}`, { method: "DELETE" });
