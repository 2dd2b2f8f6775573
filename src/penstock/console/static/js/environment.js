// The environment that this tab has selected. Two tabs may show two environments.

const KEY = "penstock.environment";

export const selectedEnvironment = () => sessionStorage.getItem(KEY);

export function selectEnvironment(name) {
  sessionStorage.setItem(KEY, name);
}

/** Return to the user's first environment; return whether another one was selected. */
export function forgetEnvironment() {
  const wasSelected = selectedEnvironment() !== null;
  sessionStorage.removeItem(KEY);
  return wasSelected;
}
