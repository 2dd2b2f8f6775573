// The whole console: the login page, or the shell around the page of the URL.

import { NOT_FOUND } from "../api.js";
import { fetchSession } from "../api/session.js";
import { ConfirmHost } from "../components/dialog.js";
import { Loading, Unavailable } from "../components/states.js";
import { ToastHost } from "../components/toast.js";
import { forgetEnvironment } from "../environment.js";
import { HealthProvider } from "../health.js";
import { html, useEffect } from "../html.js";
import { describeSession, SessionContext, useUnauthorizedCount } from "../session.js";
import { useData } from "../use_data.js";
import { CurrentPage } from "./current_page.js";
import { Header } from "./header.js";
import { LoginPage } from "./login_page.js";
import { Notice } from "./notice.js";
import { Shortcuts } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";

export function App() {
  const { data: session, problem } = useSessionData();
  if (problem && !session) return html`<main class="alone"><${Unavailable} problem=${problem} /></main>`;
  if (!session) return html`<main class="alone"><${Loading} /></main>`;
  if (!session.authenticated) return html`<${LoginPage} login=${session.login} />`;
  return html`
    <${SessionContext.Provider} value=${describeSession(session)}>
      <${HealthProvider}>
        <a class="skip" href="#content">Skip to the content</a>
        <${Header} />
        <${Sidebar} />
        <main id="content" tabindex="-1">
          <${Notice} />
          <${CurrentPage} />
        </main>
      <//>
      <${Shortcuts} />
      <${ConfirmHost} />
      <${ToastHost} />
    <//>
  `;
}

/** Fetch the session at the start, and again when a response says that it has ended. */
function useSessionData() {
  const unauthorizedCount = useUnauthorizedCount();
  const state = useData(fetchSessionOfEnvironment, [unauthorizedCount]);
  const isShown = state.data !== null;
  useEffect(() => {
    if (isShown) performance.mark("interactive");
  }, [isShown]);
  return state;
}

async function fetchSessionOfEnvironment(signal) {
  try {
    return await fetchSession(signal);
  } catch (problem) {
    // The selected environment was deleted, or the user lost the role in it.
    if (problem.status === NOT_FOUND && forgetEnvironment()) location.reload();
    throw problem;
  }
}
