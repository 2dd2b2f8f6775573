// The session: who uses the console, and what the user may do.

import { UNAUTHORIZED } from "./api.js";
import { createContext, useContext } from "./html.js";
import { createStore } from "./store.js";

const LOCAL_SUBJECT = "local"; // the caller of a broker that requires no login
const unauthorized = createStore(0);

export const SessionContext = createContext(null);

/** Return the session as components use it: `can(scope)` says whether the user may do something. */
export function describeSession(session) {
  const isReadOnly = Boolean(session.readOnly);
  const readScopes = ["read", "read:payload"];
  return {
    ...session,
    isLocal: session.subject === LOCAL_SUBJECT,
    isReadOnly,
    isPlatformAdministrator: session.platformAdministrator && !isReadOnly,
    can: (scope) => session.scopes.includes(scope) && (!isReadOnly || readScopes.includes(scope)),
  };
}

export const useSession = () => useContext(SessionContext);

/** Count a response that says that the session has ended: the shell then asks for the session again. */
export function reportUnauthorized(problem) {
  if (problem.status === UNAUTHORIZED) unauthorized.set(unauthorized.get() + 1);
}

export const useUnauthorizedCount = () => unauthorized.use();
