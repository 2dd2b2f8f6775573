// The session: the login page, and the account, its environment and the logout in the header.

import { ApiError, fetchSession, logInWithToken, logOut, UNAUTHORIZED } from "./api.js";
import { forgetEnvironment, selectEnvironment } from "./environment.js";

const NOT_FOUND = 404;
const LOCAL_SUBJECT = "local"; // the caller of a broker that requires no login

const byId = (id) => document.getElementById(id);

/** Whether an error means that the user has to log in. */
export function requiresLogin(error) {
  return error instanceof ApiError && error.status === UNAUTHORIZED;
}

/** Fetch the session and show its account; return it. Without a valid login, show the login page. */
export async function showSession(signal) {
  let session;
  try {
    session = await fetchSession(signal);
  } catch (error) {
    // The selected environment was deleted, or the user lost the role in it.
    if (error.status === NOT_FOUND && forgetEnvironment()) location.reload();
    throw error;
  }
  if (session.authenticated) showAccount(session);
  else showLogin(session.login);
  return session;
}

export const isLoginShown = () => !byId("login").hidden;

function showAccount({ subject, name, role, environment, environments }) {
  const isLocal = subject === LOCAL_SUBJECT;
  byId("account").hidden = isLocal && environments.length < 2;
  byId("account-name").hidden = isLocal;
  byId("logout").hidden = isLocal;
  byId("account-name").textContent = name;
  byId("account-name").title = role ? `${subject}, ${role}` : subject;
  const options = environments.map((value) => new Option(value, value, false, value === environment));
  byId("environment").replaceChildren(...options);
  byId("environment").disabled = environments.length < 2;
}

function showLogin({ oidc }) {
  if (isLoginShown()) return;
  document.body.classList.add("logged-out");
  byId("login").hidden = false;
  byId("login-oidc").hidden = !oidc;
  byId("login-with-token").open = !oidc;
  if (oidc) {
    const page = location.pathname + location.search + location.hash;
    byId("login-oidc").href = `/auth/login?${new URLSearchParams({ next: page })}`;
    byId("login-oidc").textContent = `Log in with ${oidc}`;
  } else {
    byId("token").focus();
  }
}

function showLoginProblem(text) {
  byId("login-problem").textContent = text;
  byId("login-problem").hidden = !text;
}

byId("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = byId("login-form").querySelector("button");
  button.disabled = true;
  showLoginProblem("");
  try {
    await logInWithToken(byId("token").value);
    forgetEnvironment();
    location.reload();
  } catch (error) {
    showLoginProblem(error.message);
    byId("token").select();
    button.disabled = false;
  }
});

byId("logout").addEventListener("click", async () => {
  byId("logout").disabled = true;
  try {
    await logOut();
    forgetEnvironment();
  } finally {
    location.reload(); // shows the login page; after a failure, the session as it is
  }
});

byId("environment").addEventListener("change", () => {
  selectEnvironment(byId("environment").value);
  location.reload();
});
