"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const DAY = 86400000;
  const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
  const VERDICTS = [
    ["at_limit", "bad", "at the limit"],
    ["soon", "bad", "full within 30 days"],
    ["behind", "bad", "fall behind"],
    ["later", "warn", "full later"],
    ["tight", "warn", "tight"],
    ["bursts", "note", "catch up later"],
    ["unknown", "blank", "too few days"],
    ["fine", "ok", "fine"],
  ];
  const TONE = Object.fromEntries(VERDICTS.map(([name, tone]) => [name, tone]));

  /* Making things. Text is always set as text. */

  function make(tag, attributes = {}, ...children) {
    const svg = ["svg", "path", "line", "rect", "circle", "text", "g", "polygon", "title"].includes(tag);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
      else if (value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  function number(value) {
    if (value === null || value === undefined) return "–";
    if (Math.abs(value) >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(3)));
  }
  const rate = (value) => (value === null ? "–" : `${number(value)}/s`);
  const percent = (value) => (value === null ? "–" : `${Math.round(value * 100)} %`);
  function wait(ms) {
    if (ms === null) return "–";
    for (const [size, unit] of [[3600000, "h"], [60000, "min"], [1000, "s"]])
      if (ms >= size) return `${Number((ms / size).toPrecision(3))} ${unit}`;
    return `${Math.round(ms)} ms`;
  }
  const moment = (text) => (text ? `${text.slice(0, 10)} ${text.slice(11, 16)}` : "–");
  const dayText = (ms) => new Date(ms).toISOString().slice(0, 10);
  const shortDay = (ms) =>
    new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  const placeOf = (subject) => [subject.organization, subject.project, subject.environment].join(" / ");
  const nameOf = (subject) => (subject.kind === "queue" ? subject.queue : subject.environment);
  const places = new Set(data.subjects.map(placeOf));
  const width = data.widthSeconds === 60 ? "minute" : "hour";

  /* Charts */

  const tip = byId("tip");
  function point(event, ...words) {
    tip.replaceChildren(...words);
    tip.hidden = false;
    const right = event.clientX + 16 + tip.offsetWidth > innerWidth;
    tip.style.left = `${right ? event.clientX - tip.offsetWidth - 12 : event.clientX + 14}px`;
    tip.style.top = `${Math.max(4, event.clientY - 34)}px`;
  }
  const unpoint = () => { tip.hidden = true; };

  function steps(top, wanted) {
    const raw = top / wanted;
    const size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * size).find((n) => n >= raw);
    return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
  }

  function spark(subject) {
    const values = subject.days[subject.measure] ?? [];
    if (values.filter((value) => value !== null).length < 2) return make("span", { class: "quiet" }, "–");
    const [w, h] = [110, 26];
    const top = Math.max(subject.limit ?? 0, ...values) || 1;
    const bins = Math.min(values.length, w);
    const highs = Array.from({ length: bins }, (_, i) =>
      Math.max(...values.slice(Math.floor((i * values.length) / bins), Math.floor(((i + 1) * values.length) / bins))));
    const y = (value) => (h - 2 - (value / top) * (h - 4)).toFixed(1);
    const path = highs.map((value, i) => `${i ? "L" : "M"}${((i * w) / (bins - 1)).toFixed(1)} ${y(value)}`).join("");
    return make("svg", { class: "spark", width: w, height: h, "aria-hidden": "true" },
      subject.limit ? make("line", { x1: 0, x2: w, y1: y(subject.limit), y2: y(subject.limit) }) : null,
      make("path", { d: path }));
  }

  function trendChart(subject) {
    const values = subject.days[subject.measure] ?? [];
    if (!values.length) return make("p", { class: "said" }, "No whole day was seen yet.");
    const first = Date.parse(subject.days.first);
    const last = first + (values.length - 1) * DAY;
    const fitted = subject.slope !== null;
    const meets = subject.saturates_on ? Date.parse(subject.saturates_on) : null;
    const span = Math.max(last - first, 6 * DAY);
    // A line drawn farther ahead than twice what was seen would make the seen part a speck.
    const ahead = fitted ? Math.max(span * 0.35, Math.min(meets ? (meets - last) * 1.12 : 0, span * 2)) : 0;
    const end = Math.max(last + ahead, first + 6 * DAY);
    const [w, h, left, right, over, under] = [640, 262, 46, 14, 16, 26];
    const level = (ms, slope = subject.slope) => subject.level + (slope * (ms - last)) / DAY;
    const reach = fitted ? level(end) : 0;
    const top = Math.max(...values, subject.limit ?? 0, Math.min(reach, subject.limit ? subject.limit * 1.25 : reach)) * 1.1 || 1;
    const x = (ms) => left + ((ms - first) / (end - first)) * (w - left - right);
    const y = (value) => h - under - (value / top) * (h - under - over);
    const chart = make("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, role: "img",
      "aria-label": `Daily peaks. ${subject.sentence}` });
    for (const value of steps(top, 4))
      chart.append(make("line", { class: "gridline", x1: left, x2: w - right, y1: y(value), y2: y(value) }),
        make("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, number(value)));
    const marks = Math.min(6, Math.max(1, Math.round((end - first) / DAY)));
    for (let i = 0; i <= marks; i += 1) {
      const ms = first + Math.round(((end - first) / DAY / marks) * i) * DAY;
      if (ms <= end) chart.append(make("text", { x: x(ms), y: h - 7,
        "text-anchor": i === 0 ? "start" : i === marks ? "end" : "middle" }, shortDay(ms)));
    }
    const clip = (ms, slope) => Math.max(0, Math.min(top, level(ms, slope)));
    if (fitted) {
      const stops = Array.from({ length: 25 }, (_, i) => last + ((end - last) * i) / 24);
      const edge = (slope) => stops.map((ms) => `${x(ms).toFixed(1)},${y(clip(ms, slope)).toFixed(1)}`);
      chart.append(make("polygon", { class: "doubt",
        points: [...edge(subject.slope_high), ...edge(subject.slope_low).reverse()].join(" ") }),
        make("line", { class: "today", x1: x(last), x2: x(last), y1: over, y2: h - under }));
    }
    const drawn = values.map((value, i) => [first + i * DAY, value]).filter(([, value]) => value !== null);
    chart.append(make("path", { class: "values",
      d: drawn.map(([ms, value], i) => `${i ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`).join("") }));
    if (drawn.length <= 120)
      chart.append(...drawn.map(([ms, value]) => make("circle", { class: "dot", cx: x(ms), cy: y(value), r: 2.4 })));
    if (subject.limit) {
      const above = y(subject.limit) - 6 > over - 6;
      chart.append(make("line", { class: "limit", x1: left, x2: w - right, y1: y(subject.limit), y2: y(subject.limit) }),
        make("text", { class: "limit-text", x: left + 6, y: y(subject.limit) + (above ? -6 : 14) },
          `limit ${number(subject.limit)}`));
    }
    if (fitted) {
      // Where the line leaves the picture, it ends.
      const bound = (slope) => {
        const at = slope > 0 ? last + ((top - subject.level) / slope) * DAY
          : slope < 0 ? last - (subject.level / slope) * DAY : end;
        return Math.min(end, Math.max(last, at));
      };
      const start = Math.max(first, subject.slope > 0 ? last - (subject.level / subject.slope) * DAY : first);
      const stop = bound(subject.slope);
      chart.append(
        make("line", { class: "trend", x1: x(start), y1: y(clip(start)), x2: x(last), y2: y(clip(last)) }),
        make("line", { class: "trend ahead", x1: x(last), y1: y(clip(last)), x2: x(stop), y2: y(clip(stop)) }));
    }
    if (meets !== null && meets <= end) {
      const flip = x(meets) > w - 130;
      chart.append(
        make("line", { class: "meets", x1: x(meets), x2: x(meets), y1: y(subject.limit), y2: h - under }),
        make("circle", { class: "meets-dot", cx: x(meets), cy: y(subject.limit), r: 5 }),
        make("text", { class: "limit-text", x: x(meets) + (flip ? -8 : 8), y: h - under - 8,
          "text-anchor": flip ? "end" : "start" }, dayText(meets)));
    } else if (meets !== null)
      chart.append(make("text", { class: "limit-text", x: w - right, y: h - under - 8, "text-anchor": "end" },
        `meets it on ${dayText(meets)} →`));
    const cursor = make("line", { class: "cursor", y1: over, y2: h - under, visibility: "hidden" });
    chart.append(cursor);
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const ms = first + (((event.clientX - box.left) / box.width) * w - left) / (w - left - right) * (end - first);
      const day = Math.round((ms - first) / DAY);
      if (day < 0 || first + day * DAY > end) return;
      cursor.setAttribute("x1", x(first + day * DAY));
      cursor.setAttribute("x2", x(first + day * DAY));
      cursor.setAttribute("visibility", "visible");
      const seen = day < values.length ? values[day] : null;
      const line = fitted ? Math.max(0, level(first + day * DAY)) : null;
      point(event, `${dayText(first + day * DAY)}  `,
        make("b", {}, day < values.length ? unitOf(subject, seen) : `${unitOf(subject, line)} expected`),
        day < values.length && line !== null ? `  (line ${unitOf(subject, line)})` : "");
    });
    chart.addEventListener("pointerleave", () => { unpoint(); cursor.setAttribute("visibility", "hidden"); });
    return chart;
  }
  const unitOf = (subject, value) => (subject.measure === "running" ? `${number(value)} running` : rate(value));

  function heatMap(subject, kind, said) {
    const values = subject.profile[kind] ?? [];
    const top = Math.max(...(subject.profile.p95 ?? [0]), ...(subject.profile.mean ?? [0])) || 1;
    const [w, left, over, cw, ch] = [640, 40, 4, 24.6, 33];
    const chart = make("svg", { class: "heat plot", viewBox: `0 0 ${w} ${over + 7 * ch + 22}`, role: "img",
      "aria-label": "Arrivals per second by hour of the week" });
    WEEKDAYS.forEach((day, d) => chart.append(
      make("text", { x: left - 8, y: over + d * ch + ch / 2 + 4, "text-anchor": "end" }, day)));
    for (let hour = 0; hour < 24; hour += 3)
      chart.append(make("text", { x: left + hour * cw, y: over + 7 * ch + 16 }, `${String(hour).padStart(2, "0")}:00`));
    values.forEach((value, cell) => {
      const box = { x: left + (cell % 24) * cw, y: over + Math.floor(cell / 24) * ch, width: cw - 2, height: ch - 2, rx: 3 };
      const tell = (event) => {
        const at = `${WEEKDAYS[Math.floor(cell / 24)]} ${String(cell % 24).padStart(2, "0")}:00`;
        const hours = subject.profile.hours[cell];
        const words = value === null ? "not seen yet"
          : `mean ${rate(subject.profile.mean[cell])}, p95 ${rate(subject.profile.p95[cell])} over ${hours} ${hours === 1 ? "hour" : "hours"}`;
        point(event, make("b", {}, at), `  ${words}`);
      };
      const on = { pointermove: tell, pointerleave: unpoint };
      chart.append(make("rect", { class: "bed", ...box, on }));
      if (value) chart.append(make("rect", { class: "cell", ...box,
        "fill-opacity": (0.06 + 0.94 * (value / top) ** 0.75).toFixed(3), on }));
    });
    const best = values.reduce((high, value, cell) => (value !== null && value > (values[high] ?? -1) ? cell : high), 0);
    said.textContent = values.some((value) => value)
      ? `Busiest: ${WEEKDAYS[Math.floor(best / 24)]} ${String(best % 24).padStart(2, "0")}:00 UTC with ${rate(values[best])}`
      : "Nothing arrived in the period.";
    return chart;
  }

  function scale() {
    const strip = make("svg", { viewBox: "0 0 90 9", class: "heat", "aria-hidden": "true" });
    for (let i = 0; i < 9; i += 1)
      strip.append(make("rect", { class: "cell", x: i * 10, y: 0, width: 9, height: 9, rx: 2, "fill-opacity": (0.06 + 0.94 * (i / 8) ** 0.75).toFixed(2) }));
    return make("span", { class: "scale" }, "none", strip, "most");
  }

  function useBar(subject) {
    if (!subject.limit) return make("span", { class: "quiet" }, subject.peak_running === null ? "no limit set"
      : `${number(subject.peak_running)}, no limit`);
    const share = Math.min(1, subject.utilisation ?? 0);
    const tone = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "";
    return make("span", { class: "use" },
      make("svg", { width: 64, height: 8, "aria-hidden": "true" },
        make("rect", { class: "track", width: 64, height: 8, rx: 4 }),
        make("rect", { class: `fill ${tone}`, width: Math.max(share ? 3 : 0, 64 * share), height: 8, rx: 4 })),
      `${number(subject.peak_running)} of ${number(subject.limit)}`);
  }

  function detail(subject) {
    const said = make("p", { class: "said" });
    const chart = make("div", {}, heatMap(subject, "mean", said));
    const choice = make("div", { class: "choice", role: "group", "aria-label": "What the cells show" });
    for (const kind of ["mean", "p95"])
      choice.append(make("button", { type: "button", "aria-pressed": String(kind === "mean"), on: { click: (event) => {
        for (const other of choice.children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
        chart.replaceChildren(heatMap(subject, kind, said));
      } } }, kind));
    const counted = subject.measure === "running" ? "Most running at once, by day" : "Arrivals in the fullest hour, by day";
    const doubt = subject.slope === null ? `A trend needs 14 whole days; there are ${subject.trend_days ?? 0}.`
      : `${subject.direction === "flat" ? "No change that could be told from chance" : `${subject.slope > 0 ? "+" : "−"}${number(Math.abs(subject.slope))} a day`}`
        + ` (95 %: ${number(subject.slope_low)} to ${number(subject.slope_high)}), from ${subject.trend_days} days`;
    const facts = [
      ["Most enqueued", rate(subject.peak_enqueued_per_s), `in the ${width} of ${moment(subject.peak_enqueued_at)}`],
      ["Most dequeued", rate(subject.peak_dequeued_per_s), `in the ${width} of ${moment(subject.peak_dequeued_at)}`],
      ["Deepest", number(subject.peak_depth), subject.peak_depth === null ? "never observed" : `in the hour of ${moment(subject.peak_depth_at)}`],
      ["Most running", number(subject.peak_running), subject.peak_running === null ? "never observed" : `in the hour of ${moment(subject.peak_running_at)}`],
      ["Limit", subject.limit ? number(subject.limit) : "no limit set", subject.limit ? `touched in ${number(subject.hours_at_limit)} hours; ${percent(subject.headroom)} free at the peak` : null],
      ["Running on average", number(Math.round(subject.busiest_hour_running * 100) / 100), "in the fullest hour, by run times"],
      ["Wait p95", wait(subject.wait_p95_ms), subject.waits ? `p50 ${wait(subject.wait_p50_ms)}, p99 ${wait(subject.wait_p99_ms)}` : "no waits measured"],
      ["Busiest hours", subject.busy_enqueued_per_s === null ? "–" : `${rate(subject.busy_enqueued_per_s)} in`,
        subject.busy_enqueued_per_s === null ? null : `${rate(subject.busy_finished_per_s)} finished (${percent(subject.busy_ratio)}), ${subject.busy_hours} hours`],
      ["In the period", `${number(subject.enqueued)} in`, `${number(subject.finished)} finished${subject.overall_ratio === null ? "" : ` (${percent(subject.overall_ratio)} per group)`}`],
    ];
    return make("tr", { class: "detail" }, make("td", { colspan: COLUMNS.length }, make("div", { class: "inside" },
      make("p", { class: "sentence" }, subject.sentence),
      make("div", { class: "plots" },
        make("section", { class: "card" }, make("header", {}, make("h3", {}, counted)), trendChart(subject), make("p", { class: "said" }, doubt)),
        make("section", { class: "card" }, make("header", {}, make("h3", {}, "Arrivals by hour of the week (UTC)"), scale(), choice), chart, said)),
      make("dl", { class: "facts" }, ...facts.map(([name, value, more]) =>
        make("div", {}, make("dt", {}, name), make("dd", {}, value, more ? make("small", {}, more) : null)))))));
  }

  /* The table */

  const COLUMNS = [
    { title: "Queue", sort: (s) => nameOf(s).toLowerCase(), up: true },
    { title: "Verdict", sort: (s) => s.attention, up: true },
    { title: "Peak running", sort: (s) => s.utilisation },
    { title: "In, peak", sort: (s) => s.peak_enqueued_per_s, number: true },
    { title: "Out, peak", sort: (s) => s.peak_dequeued_per_s, number: true },
    { title: "Depth, peak", sort: (s) => s.peak_depth, number: true },
    { title: "Wait p95", sort: (s) => s.wait_p95_ms, number: true },
    { title: "Daily peaks", sort: (s) => (s.level ? s.slope / s.level : s.slope) },
    { title: "Trend", sort: (s) => (s.level ? s.slope / s.level : s.slope), number: true },
    { title: "Full on", sort: (s) => ({ reached: "0", date: s.saturates_on, far: "8", never: "9" }[s.saturation] ?? null), up: true },
  ];
  const state = { column: 1, up: true, verdict: null, text: "",
    kind: data.subjects.some((s) => s.kind === "queue") ? "queue" : "environment" };

  function row(subject) {
    const button = make("button", { type: "button", "aria-expanded": "false" },
      make("span", { class: "text", title: nameOf(subject) }, nameOf(subject)),
      places.size > 1 || subject.kind === "environment" ? make("span", { class: "place" }, placeOf(subject)) : null);
    const cell = (words) => make("td", { class: "number" }, words);
    const never = ["never", "no_limit", "not_enough_data", "far"].includes(subject.saturation);
    const node = make("tr", { class: "row", on: { click: () => toggle(node, subject) } },
      make("td", { class: "name" }, button),
      make("td", {}, make("span", { class: `badge ${TONE[subject.verdict]}` }, subject.label)),
      make("td", {}, useBar(subject)),
      cell(rate(subject.peak_enqueued_per_s)), cell(rate(subject.peak_dequeued_per_s)),
      cell(number(subject.peak_depth)), cell(wait(subject.wait_p95_ms)),
      make("td", {}, spark(subject)),
      make("td", { class: "number" }, subject.growth || make("span", { class: "quiet" }, "–")),
      make("td", { class: never ? "quiet" : "" }, subject.saturationText));
    return node;
  }

  function toggle(node, subject) {
    const open = node.classList.toggle("open");
    node.querySelector("button").setAttribute("aria-expanded", String(open));
    if (open) node.after(detail(subject));
    else if (node.nextElementSibling?.classList.contains("detail")) node.nextElementSibling.remove();
  }

  function draw(openFirst = false) {
    const text = state.text.trim().toLowerCase();
    const ofKind = data.subjects.filter((s) => s.kind === state.kind);
    const listed = ofKind.filter((s) => (!state.verdict || s.verdict === state.verdict)
      && (!text || nameOf(s).toLowerCase().includes(text) || placeOf(s).toLowerCase().includes(text)));
    const key = COLUMNS[state.column].sort;
    const missing = (value) => value === null || value === undefined || Number.isNaN(value);
    // Sorting is stable, so what is equal stays in order of urgency; what is missing comes last either way.
    listed.sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      if (missing(left) || missing(right)) return Number(missing(left)) - Number(missing(right));
      return (left < right ? -1 : left > right ? 1 : 0) * (state.up ? 1 : -1);
    });
    const nodes = listed.map((subject) => row(subject));
    byId("rows").replaceChildren(...nodes);
    byId("none").hidden = listed.length > 0;
    const noun = state.kind === "queue" ? "queue" : "environment";
    byId("count").textContent = listed.length === ofKind.length ? `${ofKind.length} ${noun}${ofKind.length === 1 ? "" : "s"}`
      : `${listed.length} of ${ofKind.length} ${noun}s`;
    byId("heads").replaceChildren(...COLUMNS.map((column, i) => make("th", {
      class: column.number ? "number" : null, scope: "col",
      "aria-sort": i === state.column ? (state.up ? "ascending" : "descending") : null },
      make("button", { type: "button", on: { click: () => {
        state.up = i === state.column ? !state.up : Boolean(column.up);
        state.column = i;
        draw();
      } } }, i === 0 && state.kind === "environment" ? "Environment" : column.title))));
    byId("tiles").replaceChildren(...VERDICTS.map(([name, tone, words]) => {
      const count = ofKind.filter((s) => s.verdict === name).length;
      return count === 0 ? null : make("button", { type: "button", class: `tile ${tone}`,
        "aria-pressed": String(state.verdict === name), on: { click: () => {
          state.verdict = state.verdict === name ? null : name;
          draw();
        } } }, make("b", {}, number(count)), make("span", {}, words));
    }).filter(Boolean));
    if (openFirst && nodes.length) toggle(nodes[0], listed[0]);
  }

  const kinds = ["queue", "environment"].filter((kind) => data.subjects.some((s) => s.kind === kind));
  if (kinds.length > 1)
    byId("kinds").append(...kinds.map((kind) => make("button", { type: "button", "aria-pressed": String(kind === state.kind),
      on: { click: (event) => {
        state.kind = kind;
        state.verdict = null;
        for (const other of byId("kinds").children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
        draw();
      } } }, kind === "queue" ? "Queues" : "Environments")));
  byId("search").addEventListener("input", (event) => { state.text = event.target.value; draw(); });
  byId("all").addEventListener("click", () => { state.text = byId("search").value = ""; state.verdict = null; draw(); });
  byId("about").textContent = `${moment(data.from)} to ${moment(data.to)} UTC, from ${data.source === "tiers" ? "ClickHouse" : "the archive"}; `
    + `peaks per second over ${width === "hour" ? "an hour" : "a minute"}. Made ${moment(data.made)} UTC by Penstock ${data.version}.`;
  const method = [
    ["Peaks", `Counted per ${width}, shown per second. Depth and running are the highest values observed.`],
    ["Limit", "The concurrency limit that was in force last. A queue without one is never given a date: there is nothing to meet."],
    ["Trend", "The median change between same weekdays, weeks apart, through each day's peak; its line lies at the height of the high days (nine in ten are below). “Rising” and “falling” mean that the 95 % interval of the change leaves out zero. Fewer than 14 whole days give no trend."],
    ["Full on", "The day whose peak meets the limit if the growth goes on as it was. The range beside it comes from the uncertainty of the growth alone. Once peaks touch the limit they cannot rise further, so a late fit is too hopeful."],
    ["Falls behind", "In the busiest twentieth of its hours fewer than 90 % of the arrivals were finished, and over the whole period fewer than 95 %. Finished means acked, dead or expired, counted per consumer group."],
    ["Catches up later", "Fewer than 90 % in the busiest hours, but all of it in time."],
    ["Hours of the week", "An hour without events counts as zero from the queue's first hour on. p95 is the nearest rank."],
  ];
  byId("method").append(...method.flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, words)]));
  draw(true);
})();
