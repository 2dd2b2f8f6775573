// Run test modules in the browser and return what failed.

import { hold, report } from "./vendor/zora-5.2.0/zora.js";

hold(); // tests are reported by `runTests`, not when the document has loaded

/** Return the number of assertions of a test module and a description of each failure. */
export async function runTests(url) {
  await import(url);
  return report({ reporter: collectFailures });
}

async function collectFailures(messages) {
  const result = { assertions: 0, failures: [] };
  const tests = [];
  for await (const { type, data } of messages) {
    if (type === "TEST_START") tests.push(data.description);
    if (type === "TEST_END") tests.pop();
    if (type === "ERROR") result.failures.push(`${tests.join(" > ")}: ${data.error?.stack ?? data.error}`);
    if (type !== "ASSERTION") continue;
    result.assertions += 1;
    if (!data.pass) result.failures.push(`${tests.join(" > ")}: ${describeFailure(data)}`);
  }
  return result;
}

const describeFailure = ({ description, expected, actual }) =>
  `${description}: expected ${JSON.stringify(expected)}, not ${JSON.stringify(actual)}`;
