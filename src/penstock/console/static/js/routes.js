// The pages of the console. A page is loaded when it is opened first.

export const ROUTES = [
  { path: "/", title: "Overview", load: () => import("./pages/overview.js"), nav: { label: "Overview", shortcut: "g h" } },
  { path: "/console/queues", title: "Queues", load: () => import("./pages/queues.js"), nav: { label: "Queues", shortcut: "g q" } },
  { path: "/console/queues/:name", title: "Queue", load: () => import("./pages/queue.js") },
  { path: "/console/messages", title: "Messages", load: () => import("./pages/messages.js"), nav: { label: "Messages", shortcut: "g m" } },
  { path: "/console/messages/:id", title: "Message", load: () => import("./pages/message.js") },
  {
    path: "/console/dead-letters",
    title: "Dead letters",
    load: () => import("./pages/dead_letters.js"),
    nav: { label: "Dead letters", shortcut: "g d" },
  },
  { path: "/console/dead-letters/:errorGroup", title: "Error", load: () => import("./pages/error_group.js") },
  { path: "/console/workers", title: "Workers", load: () => import("./pages/workers.js"), nav: { label: "Workers", shortcut: "g w" } },
  { path: "/console/operations", title: "Operations", load: () => import("./pages/operations.js"), nav: { label: "Operations", shortcut: "g o" } },
  { path: "/console/pipeline", title: "Pipeline", load: () => import("./pages/pipeline.js"), nav: { label: "Pipeline", shortcut: "g p" } },
  { path: "/console/alerts", title: "Alerts", load: () => import("./pages/alerts.js"), nav: { label: "Alerts", shortcut: "g a" } },
  { path: "/console/access", title: "Access", load: () => import("./pages/access.js"), nav: { label: "Access", shortcut: "g c" } },
];

/**
 * Return the route of a path and the parameters in it, or null if no page has this path.
 * A segment of the form `:name` matches any text.
 */
export function findRoute(path, routes = ROUTES) {
  const segments = splitPath(path);
  for (const route of routes) {
    const params = matchSegments(splitPath(route.path), segments);
    if (params) return { route, params };
  }
  return null;
}

const splitPath = (path) => path.split("/").filter(Boolean);

function matchSegments(pattern, segments) {
  if (pattern.length !== segments.length) return null;
  const params = {};
  for (const [i, expected] of pattern.entries()) {
    if (expected.startsWith(":")) params[expected.slice(1)] = decodeSegment(segments[i]);
    else if (expected !== segments[i]) return null;
  }
  return params;
}

/** A name in the URL, or its text as it stands if a user has typed an invalid escape. */
function decodeSegment(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
