import { test } from "./vendor/zora-5.2.0/zora.js";
import { differenceOf } from "/static/js/pages/access/difference.js";
import { quotasOf } from "/static/js/pages/access/quota_dialog.js";
import { tokenOf } from "/static/js/pages/access/token_dialog.js";
import { rightsText } from "/static/js/pages/access/tokens.js";

test("the difference of two states has the fields that changed", (t) => {
  const before = { name: "q", options: { retryLimit: 3, ttl: 1 }, tags: ["a"] };
  const after = { name: "q", options: { retryLimit: 9 }, tags: ["a", "b"] };
  t.eq(differenceOf(before, after), [
    { path: "options.retryLimit", before: 3, after: 9 },
    { path: "options.ttl", before: 1, after: undefined },
    { path: "tags", before: ["a"], after: ["a", "b"] },
  ]);
  t.eq(differenceOf(null, { name: "q" }), [{ path: "name", before: undefined, after: "q" }]);
  t.eq(differenceOf(null, null), []);
});

test("a token has patterns or no limit", (t) => {
  const form = { name: " ci ", scopes: ["read"], queues: "a-*, b", groups: " ", days: "30", platformAdmin: false };
  t.eq(tokenOf(form), { name: "ci", scopes: ["read"], queues: ["a-*", "b"], groups: null, platformAdmin: false, expiresInS: 2_592_000 });
  t.eq(rightsText({ scopes: ["read", "produce"], queues: ["a"], groups: null }), "read, produce; only queues a");
});

test("an empty quota has no limit", (t) => t.eq(quotasOf({ queues: "5", partitions: "" }), { queues: 5 }));
