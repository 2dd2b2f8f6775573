// The login page: by the identity provider, or with a token.

import { logInWithToken } from "../api/session.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { urlOf } from "../location.js";

export function LoginPage({ login: { oidc } }) {
  useEffect(() => {
    document.title = "Log in · Penstock";
  }, []);
  const next = location.pathname + location.search + location.hash;
  return html`
    <main class="login" id="login">
      <h1>Log in to Penstock</h1>
      ${oidc && html`<a class="button primary" href=${urlOf("/auth/login", { next })}>Log in with ${oidc}</a>`}
      ${oidc ? html`<details><summary>Log in with a token</summary><${TokenForm} /></details>` : html`<${TokenForm} hasFocus />`}
    </main>
  `;
}

function TokenForm({ hasFocus = false }) {
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const input = useRef(null);
  useEffect(() => {
    if (hasFocus) input.current.focus();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      await logInWithToken(input.current.value);
      location.reload();
    } catch (error) {
      setProblem(error.message);
      setBusy(false);
      input.current.select();
    }
  };
  return html`
    <form onSubmit=${submit}>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <label for="token">Token</label>
      <input ref=${input} type="password" id="token" placeholder="pk_…" autocomplete="off" spellcheck=${false} required />
      <button type="submit" class="primary" disabled=${isBusy}>Log in</button>
      <p class="hint">An administrator creates tokens with <code>penstock tokens create</code>. The session ends with the token.</p>
    </form>
  `;
}
