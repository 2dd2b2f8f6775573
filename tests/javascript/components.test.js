import { test } from "./vendor/zora-5.2.0/zora.js";
import { DataTable } from "/static/js/components/data_table.js";
import { toPolylines } from "/static/js/components/sparkline.js";
import { html, render } from "/static/js/html.js";
import { describeSession } from "/static/js/session.js";
import { createStore } from "/static/js/store.js";
import { useData } from "/static/js/use_data.js";

/** Render a template into a new element, and wait until its effects have run. */
async function show(template) {
  const host = document.body.appendChild(document.createElement("div"));
  render(template, host);
  await settled();
  return host;
}

const settled = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 30)));

test("a sparkline has a gap where values are unknown", (t) => {
  t.eq(toPolylines([0, 4, null, 2], 4).length, 2);
  t.eq(toPolylines([0, 4], 4), ["0.0,23.0 100.0,1.0"]);
  t.eq(toPolylines([null, null], 1), []);
});

test("a table sorts by the column that the user selects", async (t) => {
  const calls = [];
  const columns = [{ key: "name", label: "Name", isSortable: true }, { key: "depth", label: "Depth" }];
  const rows = [{ name: "<b>a</b>", depth: 1 }];
  const props = { caption: "Queues", columns, rows, rowKey: (row) => row.name, sort: { key: "name", order: "asc" } };
  const host = await show(html`<${DataTable} ...${props} onSort=${(...args) => calls.push(args)} />`);
  t.eq(host.querySelector("td").textContent, "<b>a</b>", "names are text, not HTML");
  t.eq(host.querySelector("th").getAttribute("aria-sort"), "ascending");
  host.querySelector("th button").click();
  t.eq(calls, [["name", "desc"]]);
});

test("scopes decide what the user may do, and a read-only console allows reading only", (t) => {
  const session = { subject: "user:1", scopes: ["read", "operate"], platformAdministrator: false };
  t.ok(describeSession(session).can("operate"));
  t.notOk(describeSession(session).can("admin"));
  const readOnly = describeSession({ ...session, readOnly: true });
  t.ok(readOnly.can("read"));
  t.notOk(readOnly.can("operate"));
});

test("data stays after a failed fetch, and the problem is known", async (t) => {
  const results = [() => "first", () => Promise.reject(Object.assign(new Error("away"), { name: "ApiProblem" }))];
  const states = [];
  const attempt = createStore(0);
  function Reader() {
    const dependency = attempt.use();
    states.push(useData(async () => results[dependency](), [dependency]));
    return null;
  }
  await show(html`<${Reader} />`);
  t.eq(states.at(-1).data, "first");
  attempt.set(1);
  await settled();
  const { data, problem, isLoading } = states.at(-1);
  t.eq([data, problem.message, isLoading], ["first", "away", false]);
});
