// A value outside the component tree that components can follow, such as the URL or the theme.

import { useEffect, useState } from "./html.js";

/** Return a store: `get()`, `set(value)`, `subscribe(listener)` and the hook `use()`. */
export function createStore(initialValue) {
  let value = initialValue;
  const listeners = new Set();
  const store = {
    get: () => value,
    set(newValue) {
      value = newValue;
      listeners.forEach((listener) => listener(value));
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    use() {
      const [, rerender] = useState(value);
      useEffect(() => {
        rerender(value); // it may have changed between the first render and this effect
        return store.subscribe(rerender);
      }, []);
      return value;
    },
  };
  return store;
}
