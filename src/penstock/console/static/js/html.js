// Preact with templates: everything that components import from the vendored libraries.

import { createContext, Fragment, h, render } from "../vendor/preact-11.2.0/preact.js";
import htm from "../vendor/htm-3.1.1/htm.js";

export const html = htm.bind(h);
export { createContext, Fragment, render };
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/preact-11.2.0/hooks.js";
