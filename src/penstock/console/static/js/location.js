// The URL, which holds everything that the page shows: the path and the query.

import { createStore } from "./store.js";

const current = () => new URL(location.href);
const url = createStore(current());

addEventListener("popstate", () => url.set(current()));

/** Go to a URL of the console. `replace` keeps the number of entries in the browser's history. */
export function navigate(target, { replace = false } = {}) {
  const previousPath = location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  url.set(current());
  if (location.pathname !== previousPath) scrollTo(0, 0);
}

/** Return the URL of a path with query parameters. Empty and unknown values are omitted. */
export function urlOf(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  return query.size ? `${path}?${query}` : path;
}

export const useLocation = () => url.use();

/** Change some query parameters of the URL. An empty value removes its parameter. */
export function setQueryParams(changes, { push = false } = {}) {
  const params = Object.fromEntries(new URLSearchParams(location.search));
  navigate(urlOf(location.pathname, { ...params, ...changes }), { replace: !push });
}

/** Return all query parameters as an object, and the function that changes some of them. */
export function useQueryParams() {
  const { searchParams } = useLocation();
  return [Object.fromEntries(searchParams), setQueryParams];
}

/** Return the value of one query parameter and its setter. The default value is not part of the URL. */
export function useQueryParam(name, defaultValue = "") {
  const { searchParams } = useLocation();
  const set = (value, options) => setQueryParams({ [name]: value === defaultValue ? "" : value }, options);
  return [searchParams.get(name) ?? defaultValue, set];
}

/** Follow links to pages of the console without loading the document again. */
export function interceptLinks() {
  document.addEventListener("click", (event) => {
    const isPlainClick = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    const link = event.target.closest?.("a[href]");
    if (!isPlainClick || event.defaultPrevented || !link || link.target || link.hasAttribute("download")) return;
    const target = new URL(link.href);
    if (target.origin !== location.origin || !isConsolePath(target.pathname)) return;
    if (target.hash && target.pathname === location.pathname && target.search === location.search) return;
    event.preventDefault();
    navigate(target.href);
  });
}

const isConsolePath = (path) => path === "/" || path.startsWith("/console/");
