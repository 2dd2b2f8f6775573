// The user's request to fetch everything on the page again (the key r).

const listeners = new Set();

/** Call `listener` at each request; return the function that ends this. */
export function onRefresh(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function refreshAll() {
  listeners.forEach((listener) => listener());
}
