import { test } from "./vendor/zora-5.2.0/zora.js";
import { formatBytes, formatDateTime, formatDuration, formatPercent, formatRelative, formatTime } from "/static/js/format.js";
import { timeZone } from "/static/js/preferences.js";

test("sizes have at most three digits", (t) => {
  const texts = [0, 999, 1_000, 1_536, 20_000_000, 999_600, null].map(formatBytes);
  t.eq(texts, ["0 B", "999 B", "1 KB", "1.54 KB", "20 MB", "1000 KB", "–"]);
});

test("shares are percentages", (t) => {
  t.eq([0, 0.256, 0.999, 1, null].map(formatPercent), ["0 %", "26 %", "99.9 %", "100 %", "–"]);
});

test("times are relative to now", (t) => {
  const texts = [-500, -30_000, -180_000, 7_200_000, -10 * 86_400_000].map(formatRelative);
  t.eq(texts, ["now", "30 s ago", "3 min ago", "in 2 h", "10 days ago"]);
});

test("durations have at most two units", (t) => {
  t.eq([0.4, 84, 4_200, 185_000, 7_800_000, null].map(formatDuration), ["<1 ms", "84 ms", "4.2 s", "3m 05s", "2h 10m", "–"]);
});

test("times follow the selected time zone", (t) => {
  const ms = Date.UTC(2026, 0, 2, 23, 4, 5);
  timeZone.set("UTC");
  t.ok(formatDateTime(ms).endsWith("23:04:05 UTC"), formatDateTime(ms));
  t.ok(formatTime(ms / 1_000, 5).endsWith("23:04:05"), formatTime(ms / 1_000, 5));
  timeZone.set("local");
  t.ok(!formatDateTime(ms).includes("UTC"), formatDateTime(ms));
});
