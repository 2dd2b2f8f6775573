// The header: brand, health of the components, environment, preferences and account.

import { logOut } from "../api/session.js";
import { ActionButton } from "../components/action_button.js";
import { forgetEnvironment, selectEnvironment } from "../environment.js";
import { useHealth } from "../health.js";
import { html } from "../html.js";
import { themePreference, THEMES, timeZone, TIME_ZONES } from "../preferences.js";
import { useSession } from "../session.js";
import { openShortcuts } from "./shortcuts.js";

export function Header() {
  const session = useSession();
  return html`
    <header class="top">
      <a class="brand" href="/"><img src="/static/icon.svg" alt="" width="22" height="22" /><span>Penstock</span></a>
      <${Components} />
      <div class="header-end">
        ${session.isReadOnly && html`<span class="badge info">read-only</span>`}
        <${EnvironmentSelect} session=${session} />
        <${Choice} label="Time zone" store=${timeZone} choices=${TIME_ZONES} />
        <${Choice} label="Theme" store=${themePreference} choices=${THEMES} />
        <button type="button" class="quiet" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${openShortcuts}>?</button>
        ${!session.isLocal && html`<${Account} session=${session} />`}
      </div>
    </header>
  `;
}

function Components() {
  const { data: health } = useHealth();
  const components = Object.entries(health?.parts ?? {});
  return html`
    <ul class="components" aria-label="Health of the components">
      ${components.map(([name, { status, detail }]) => html`
        <li key=${name} class=${status === "up" ? "up" : "down"} title=${detail ?? status}>
          ${name}<span class="visually-hidden">: ${status}</span>
        </li>
      `)}
    </ul>
  `;
}

function EnvironmentSelect({ session: { environment, environments, isLocal } }) {
  if (isLocal && environments.length < 2) return null;
  const change = (event) => {
    selectEnvironment(event.currentTarget.value);
    location.reload();
  };
  return html`
    <label>
      <span class="visually-hidden">Environment</span>
      <select id="environment" disabled=${environments.length < 2} onChange=${change}>
        ${environments.map((name) => html`<option key=${name} value=${name} selected=${name === environment}>${name}</option>`)}
      </select>
    </label>
  `;
}

function Choice({ label, store, choices }) {
  const value = store.use();
  return html`
    <label class="choice">
      <span class="visually-hidden">${label}</span>
      <select title=${label} onChange=${(event) => store.set(event.currentTarget.value)}>
        ${choices.map((choice) => html`<option key=${choice} value=${choice} selected=${choice === value}>${choice}</option>`)}
      </select>
    </label>
  `;
}

function Account({ session: { subject, name, role } }) {
  const leave = async () => {
    await logOut();
    forgetEnvironment();
    location.reload();
  };
  return html`
    <span class="account">
      <span id="account-name" title=${role ? `${subject}, ${role}` : subject}>${name}</span>
      <${ActionButton} action=${leave}>Log out<//>
    </span>
  `;
}
