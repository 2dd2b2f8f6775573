// The session of the console: who is logged in, log in, log out.

import { request, setCsrfToken } from "../api.js";

/** Fetch the session and keep its CSRF token for later requests. */
export async function fetchSession(signal) {
  const session = await request("/api/v1/session", { signal });
  setCsrfToken(session.csrfToken);
  return session;
}

export const logInWithToken = (token) => request("/api/v1/session", { method: "POST", body: { token } });

export const logOut = () => request("/api/v1/session", { method: "DELETE" });
