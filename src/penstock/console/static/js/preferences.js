// The user's preferences of this browser: theme and time zone.

import { createStore } from "./store.js";

const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** A store whose value is kept in this browser. Values other than `choices` are ignored. */
function createPreference(key, choices) {
  const stored = localStorage.getItem(key);
  const store = createStore(choices.includes(stored) ? stored : choices[0]);
  store.subscribe((value) => localStorage.setItem(key, value));
  return store;
}

export const THEMES = ["system", "light", "dark"];
export const TIME_ZONES = ["local", "UTC"];
export const themePreference = createPreference("penstock.theme", THEMES);
export const timeZone = createPreference("penstock.timeZone", TIME_ZONES);

const shownTheme = createStore("light");

function applyTheme() {
  const preference = themePreference.get();
  const theme = preference === "system" ? (systemDark.matches ? "dark" : "light") : preference;
  document.documentElement.dataset.theme = theme;
  shownTheme.set(theme);
}

systemDark.addEventListener("change", applyTheme);
themePreference.subscribe(applyTheme);
applyTheme();

/** The theme that is shown: `light` or `dark`. */
export const useTheme = () => shownTheme.use();
