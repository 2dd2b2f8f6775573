import { test } from "./vendor/zora-5.2.0/zora.js";
import { withQuery } from "/static/js/api.js";
import { urlOf } from "/static/js/location.js";
import { readSpan } from "/static/js/period.js";
import { findRoute } from "/static/js/routes.js";

const routes = [{ path: "/" }, { path: "/console/queues" }, { path: "/console/queues/:name" }];
const match = (path) => {
  const match = findRoute(path, routes);
  return match && [match.route.path, match.params];
};

test("a path selects its route and parameters", (t) => {
  t.eq(match("/"), ["/", {}]);
  t.eq(match("/console/queues/"), ["/console/queues", {}]);
  t.eq(match("/console/queues/a%2Fb%20c"), ["/console/queues/:name", { name: "a/b c" }]);
  t.eq(match("/console/queues/100%"), ["/console/queues/:name", { name: "100%" }]);
  t.eq(match("/console/other"), null);
});

test("a URL omits empty parameters", (t) => {
  t.eq(urlOf("/console/queues", { search: "a b", page: "", sort: null, order: undefined }), "/console/queues?search=a+b");
  t.eq(urlOf("/", {}), "/");
  t.eq(withQuery("/api", { state: ["a", "b"], page: 0, empty: "" }), "/api?state=a&state=b&page=0");
});

test("the time span is a known period or a fixed span", (t) => {
  t.eq(readSpan({}).params, { period: "30m", resolution: "5s" });
  t.eq(readSpan({ period: "7d" }).params, { period: "7d", resolution: "1h" });
  t.eq(readSpan({ period: "constructor" }).period, "30m");
  const zoomed = readSpan({ from: "2026-01-01T00:00:00Z", to: "2026-01-01T01:00:00Z" });
  t.eq(zoomed.params, { from: "2026-01-01T00:00:00.000Z", to: "2026-01-01T01:00:00.000Z" });
  t.eq(zoomed.intervalMs, 0, "a fixed span is not refreshed");
  t.eq(readSpan({ from: "2026-01-02", to: "2026-01-01" }).period, "30m", "an empty span is ignored");
});
