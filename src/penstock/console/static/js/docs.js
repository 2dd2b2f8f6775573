// The page /docs: Swagger UI for the API of this broker.

import { fetchSession } from "./api/session.js";

const READING_METHODS = ["GET", "HEAD"];

/** Requests that change something need the CSRF token of the session, unless they carry a token of their own. */
async function addCsrfToken(request) {
  if (READING_METHODS.includes(request.method?.toUpperCase() ?? "GET") || request.headers?.Authorization) return request;
  const { csrfToken } = await fetchSession(new AbortController().signal);
  if (csrfToken) request.headers["X-CSRF-Token"] = csrfToken;
  return request;
}

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
  // The badge would send the address of this broker to a server on the Internet.
  validatorUrl: null,
  requestInterceptor: addCsrfToken,
});
