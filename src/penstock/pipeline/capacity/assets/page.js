"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const DAY = 86400000;
  const WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
  const VERDICTS = [
    ["at_limit", "bad", "at the limit"],
    ["soon", "bad", "reach the limit within 30 days"],
    ["behind", "bad", "fall behind"],
    ["later", "warn", "reach the limit later"],
    ["tight", "warn", "near the limit"],
    ["bursts", "note", "catch up later"],
    ["unknown", "blank", "not enough data"],
    ["fine", "ok", "fine"],
  ];
  const TONE = Object.fromEntries(VERDICTS.map(([name, tone]) => [name, tone]));

  /* DOM and formatting helpers. Text is always set as text, never as markup. */

  function createNode(tag, attributes = {}, ...children) {
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
  const timeText = (text) => (text ? `${text.slice(0, 10)} ${text.slice(11, 16)}` : "–");
  const dayText = (ms) => new Date(ms).toISOString().slice(0, 10);
  const shortDay = (ms) =>
    new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  const environmentPath = (subject) => [subject.organization, subject.project, subject.environment].join(" / ");
  const subjectName = (subject) => (subject.kind === "queue" ? subject.queue : subject.environment);
  const environmentPaths = new Set(data.subjects.map(environmentPath));
  const width = data.widthSeconds === 60 ? "minute" : "hour";

  /* Charts */

  const tooltip = byId("tooltip");
  function showTooltip(event, ...content) {
    tooltip.replaceChildren(...content);
    tooltip.hidden = false;
    const right = event.clientX + 16 + tooltip.offsetWidth > innerWidth;
    tooltip.style.left = `${right ? event.clientX - tooltip.offsetWidth - 12 : event.clientX + 14}px`;
    tooltip.style.top = `${Math.max(4, event.clientY - 34)}px`;
  }
  const hideTooltip = () => { tooltip.hidden = true; };

  function axisTicks(top, count) {
    const raw = top / count;
    const size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * size).find((n) => n >= raw);
    return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
  }

  function sparkline(subject) {
    const values = subject.days[subject.measure] ?? [];
    if (values.filter((value) => value !== null).length < 2) return createNode("span", { class: "muted" }, "–");
    const [w, h] = [110, 26];
    const top = Math.max(subject.limit ?? 0, ...values) || 1;
    const bins = Math.min(values.length, w);
    const highs = Array.from({ length: bins }, (_, i) =>
      Math.max(...values.slice(Math.floor((i * values.length) / bins), Math.floor(((i + 1) * values.length) / bins))));
    const y = (value) => (h - 2 - (value / top) * (h - 4)).toFixed(1);
    const path = highs.map((value, i) => `${i ? "L" : "M"}${((i * w) / (bins - 1)).toFixed(1)} ${y(value)}`).join("");
    return createNode("svg", { class: "spark", width: w, height: h, "aria-hidden": "true" },
      subject.limit ? createNode("line", { x1: 0, x2: w, y1: y(subject.limit), y2: y(subject.limit) }) : null,
      createNode("path", { d: path }));
  }

  function trendChart(subject) {
    const values = subject.days[subject.measure] ?? [];
    if (!values.length) return createNode("p", { class: "caption" }, "There is no complete day yet.");
    const first = Date.parse(subject.days.first);
    const last = first + (values.length - 1) * DAY;
    const fitted = subject.slope !== null;
    const saturates = subject.saturates_on ? Date.parse(subject.saturates_on) : null;
    const span = Math.max(last - first, 6 * DAY);
    // The forecast takes at most twice the width of the measured days, so that those stay readable.
    const forecast = fitted ? Math.max(span * 0.35, Math.min(saturates ? (saturates - last) * 1.12 : 0, span * 2)) : 0;
    const end = Math.max(last + forecast, first + 6 * DAY);
    const [w, h, marginLeft, marginRight, marginTop, marginBottom] = [640, 262, 46, 14, 16, 26];
    const level = (ms, slope = subject.slope) => subject.level + (slope * (ms - last)) / DAY;
    const lastLevel = fitted ? level(end) : 0;
    const top = Math.max(...values, subject.limit ?? 0, Math.min(lastLevel, subject.limit ? subject.limit * 1.25 : lastLevel)) * 1.1 || 1;
    const x = (ms) => marginLeft + ((ms - first) / (end - first)) * (w - marginLeft - marginRight);
    const y = (value) => h - marginBottom - (value / top) * (h - marginBottom - marginTop);
    const chart = createNode("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, role: "img",
      "aria-label": `Daily peaks. ${subject.sentence}` });
    for (const value of axisTicks(top, 4))
      chart.append(createNode("line", { class: "gridline", x1: marginLeft, x2: w - marginRight, y1: y(value), y2: y(value) }),
        createNode("text", { x: marginLeft - 7, y: y(value) + 4, "text-anchor": "end" }, number(value)));
    const marks = Math.min(6, Math.max(1, Math.round((end - first) / DAY)));
    for (let i = 0; i <= marks; i += 1) {
      const ms = first + Math.round(((end - first) / DAY / marks) * i) * DAY;
      if (ms <= end) chart.append(createNode("text", { x: x(ms), y: h - 7,
        "text-anchor": i === 0 ? "start" : i === marks ? "end" : "middle" }, shortDay(ms)));
    }
    const clip = (ms, slope) => Math.max(0, Math.min(top, level(ms, slope)));
    if (fitted) {
      const stops = Array.from({ length: 25 }, (_, i) => last + ((end - last) * i) / 24);
      const edge = (slope) => stops.map((ms) => `${x(ms).toFixed(1)},${y(clip(ms, slope)).toFixed(1)}`);
      chart.append(createNode("polygon", { class: "interval",
        points: [...edge(subject.slope_high), ...edge(subject.slope_low).reverse()].join(" ") }),
        createNode("line", { class: "today", x1: x(last), x2: x(last), y1: marginTop, y2: h - marginBottom }));
    }
    const points = values.map((value, i) => [first + i * DAY, value]).filter(([, value]) => value !== null);
    chart.append(createNode("path", { class: "values",
      d: points.map(([ms, value], i) => `${i ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`).join("") }));
    if (points.length <= 120)
      chart.append(...points.map(([ms, value]) => createNode("circle", { class: "dot", cx: x(ms), cy: y(value), r: 2.4 })));
    if (subject.limit) {
      const above = y(subject.limit) - 6 > marginTop - 6;
      chart.append(createNode("line", { class: "limit", x1: marginLeft, x2: w - marginRight, y1: y(subject.limit), y2: y(subject.limit) }),
        createNode("text", { class: "limit-text", x: marginLeft + 6, y: y(subject.limit) + (above ? -6 : 14) },
          `limit ${number(subject.limit)}`));
    }
    if (fitted) {
      // The line ends where it leaves the chart.
      const lineEnd = (slope) => {
        const edge = slope > 0 ? last + ((top - subject.level) / slope) * DAY
          : slope < 0 ? last - (subject.level / slope) * DAY : end;
        return Math.min(end, Math.max(last, edge));
      };
      const start = Math.max(first, subject.slope > 0 ? last - (subject.level / subject.slope) * DAY : first);
      const stop = lineEnd(subject.slope);
      chart.append(
        createNode("line", { class: "trend", x1: x(start), y1: y(clip(start)), x2: x(last), y2: y(clip(last)) }),
        createNode("line", { class: "trend forecast", x1: x(last), y1: y(clip(last)), x2: x(stop), y2: y(clip(stop)) }));
    }
    if (saturates !== null && saturates <= end) {
      const flip = x(saturates) > w - 130;
      chart.append(
        createNode("line", { class: "saturation-line", x1: x(saturates), x2: x(saturates), y1: y(subject.limit), y2: h - marginBottom }),
        createNode("circle", { class: "saturation-dot", cx: x(saturates), cy: y(subject.limit), r: 5 }),
        createNode("text", { class: "limit-text", x: x(saturates) + (flip ? -8 : 8), y: h - marginBottom - 8,
          "text-anchor": flip ? "end" : "start" }, dayText(saturates)));
    } else if (saturates !== null)
      chart.append(createNode("text", { class: "limit-text", x: w - marginRight, y: h - marginBottom - 8, "text-anchor": "end" },
        `reached on ${dayText(saturates)} →`));
    const cursor = createNode("line", { class: "cursor", y1: marginTop, y2: h - marginBottom, visibility: "hidden" });
    chart.append(cursor);
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const ms = first + (((event.clientX - box.left) / box.width) * w - marginLeft) / (w - marginLeft - marginRight) * (end - first);
      const day = Math.round((ms - first) / DAY);
      if (day < 0 || first + day * DAY > end) return;
      cursor.setAttribute("x1", x(first + day * DAY));
      cursor.setAttribute("x2", x(first + day * DAY));
      cursor.setAttribute("visibility", "visible");
      const measured = day < values.length ? values[day] : null;
      const line = fitted ? Math.max(0, level(first + day * DAY)) : null;
      showTooltip(event, `${dayText(first + day * DAY)}  `,
        createNode("b", {}, day < values.length ? withUnit(subject, measured) : `${withUnit(subject, line)} expected`),
        day < values.length && line !== null ? `  (trend ${withUnit(subject, line)})` : "");
    });
    chart.addEventListener("pointerleave", () => { hideTooltip(); cursor.setAttribute("visibility", "hidden"); });
    return chart;
  }
  const withUnit = (subject, value) => (subject.measure === "running" ? `${number(value)} running` : rate(value));

  function heatMap(subject, kind, caption) {
    const values = subject.profile[kind] ?? [];
    const top = Math.max(...(subject.profile.p95 ?? [0]), ...(subject.profile.mean ?? [0])) || 1;
    const [w, marginLeft, marginTop, cellWidth, cellHeight] = [640, 40, 4, 24.6, 33];
    const chart = createNode("svg", { class: "heat plot", viewBox: `0 0 ${w} ${marginTop + 7 * cellHeight + 22}`, role: "img",
      "aria-label": "Arrivals per second by hour of the week" });
    WEEKDAYS.forEach((day, d) => chart.append(
      createNode("text", { x: marginLeft - 8, y: marginTop + d * cellHeight + cellHeight / 2 + 4, "text-anchor": "end" }, day)));
    for (let hour = 0; hour < 24; hour += 3)
      chart.append(createNode("text", { x: marginLeft + hour * cellWidth, y: marginTop + 7 * cellHeight + 16 }, `${String(hour).padStart(2, "0")}:00`));
    values.forEach((value, cell) => {
      const box = { x: marginLeft + (cell % 24) * cellWidth, y: marginTop + Math.floor(cell / 24) * cellHeight,
        width: cellWidth - 2, height: cellHeight - 2, rx: 3 };
      const showCell = (event) => {
        const time = `${WEEKDAYS[Math.floor(cell / 24)]} ${String(cell % 24).padStart(2, "0")}:00`;
        const hours = subject.profile.hours[cell];
        const figures = value === null ? "no measurements yet"
          : `mean ${rate(subject.profile.mean[cell])}, p95 ${rate(subject.profile.p95[cell])} over ${hours} ${hours === 1 ? "hour" : "hours"}`;
        showTooltip(event, createNode("b", {}, time), `  ${figures}`);
      };
      const on = { pointermove: showCell, pointerleave: hideTooltip };
      chart.append(createNode("rect", { class: "cell-background", ...box, on }));
      if (value) chart.append(createNode("rect", { class: "cell", ...box,
        "fill-opacity": (0.06 + 0.94 * (value / top) ** 0.75).toFixed(3), on }));
    });
    const busiest = values.reduce((high, value, cell) => (value !== null && value > (values[high] ?? -1) ? cell : high), 0);
    caption.textContent = values.some((value) => value)
      ? `Busiest: ${WEEKDAYS[Math.floor(busiest / 24)]} ${String(busiest % 24).padStart(2, "0")}:00 UTC with ${rate(values[busiest])}`
      : "No arrivals in the period.";
    return chart;
  }

  function colorScale() {
    const strip = createNode("svg", { viewBox: "0 0 90 9", class: "heat", "aria-hidden": "true" });
    for (let i = 0; i < 9; i += 1)
      strip.append(createNode("rect", { class: "cell", x: i * 10, y: 0, width: 9, height: 9, rx: 2, "fill-opacity": (0.06 + 0.94 * (i / 8) ** 0.75).toFixed(2) }));
    return createNode("span", { class: "scale" }, "none", strip, "highest");
  }

  function utilisationBar(subject) {
    if (!subject.limit) return createNode("span", { class: "muted" }, subject.peak_running === null ? "no limit set"
      : `${number(subject.peak_running)}, no limit`);
    const share = Math.min(1, subject.utilisation ?? 0);
    const tone = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "";
    return createNode("span", { class: "use" },
      createNode("svg", { width: 64, height: 8, "aria-hidden": "true" },
        createNode("rect", { class: "track", width: 64, height: 8, rx: 4 }),
        createNode("rect", { class: `fill ${tone}`, width: Math.max(share ? 3 : 0, 64 * share), height: 8, rx: 4 })),
      `${number(subject.peak_running)} of ${number(subject.limit)}`);
  }

  function detailRow(subject) {
    const caption = createNode("p", { class: "caption" });
    const chart = createNode("div", {}, heatMap(subject, "mean", caption));
    const choice = createNode("div", { class: "choice", role: "group", "aria-label": "What the cells show" });
    for (const kind of ["mean", "p95"])
      choice.append(createNode("button", { type: "button", "aria-pressed": String(kind === "mean"), on: { click: (event) => {
        for (const other of choice.children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
        chart.replaceChildren(heatMap(subject, kind, caption));
      } } }, kind));
    const trendTitle = subject.measure === "running" ? "Maximum running at once, by day" : "Arrivals in the busiest hour, by day";
    const trendCaption = subject.slope === null ? `A trend needs 14 complete days; there are ${subject.trend_days ?? 0}.`
      : `${subject.direction === "flat" ? "No significant change" : `${subject.slope > 0 ? "+" : "−"}${number(Math.abs(subject.slope))} a day`}`
        + ` (95 %: ${number(subject.slope_low)} to ${number(subject.slope_high)}), from ${subject.trend_days} days`;
    const facts = [
      ["Peak enqueued", rate(subject.peak_enqueued_per_s), `in the ${width} of ${timeText(subject.peak_enqueued_at)}`],
      ["Peak dequeued", rate(subject.peak_dequeued_per_s), `in the ${width} of ${timeText(subject.peak_dequeued_at)}`],
      ["Peak depth", number(subject.peak_depth), subject.peak_depth === null ? "never observed" : `in the hour of ${timeText(subject.peak_depth_at)}`],
      ["Peak running", number(subject.peak_running), subject.peak_running === null ? "never observed" : `in the hour of ${timeText(subject.peak_running_at)}`],
      ["Limit", subject.limit ? number(subject.limit) : "no limit set", subject.limit ? `reached in ${number(subject.hours_at_limit)} hours; ${percent(subject.headroom)} free at the peak` : null],
      ["Running on average", number(Math.round(subject.busiest_hour_running * 100) / 100), "in the busiest hour, from run times"],
      ["Wait p95", wait(subject.wait_p95_ms), subject.waits ? `p50 ${wait(subject.wait_p50_ms)}, p99 ${wait(subject.wait_p99_ms)}` : "no waits measured"],
      ["Busiest hours", subject.busy_enqueued_per_s === null ? "–" : `${rate(subject.busy_enqueued_per_s)} in`,
        subject.busy_enqueued_per_s === null ? null : `${rate(subject.busy_finished_per_s)} finished (${percent(subject.busy_ratio)}), ${subject.busy_hours} hours`],
      ["In the period", `${number(subject.enqueued)} in`, `${number(subject.finished)} finished${subject.overall_ratio === null ? "" : ` (${percent(subject.overall_ratio)} per group)`}`],
    ];
    return createNode("tr", { class: "detail" }, createNode("td", { colspan: COLUMNS.length }, createNode("div", { class: "detail-content" },
      createNode("p", { class: "sentence" }, subject.sentence),
      createNode("div", { class: "plots" },
        createNode("section", { class: "card" }, createNode("header", {}, createNode("h3", {}, trendTitle)), trendChart(subject), createNode("p", { class: "caption" }, trendCaption)),
        createNode("section", { class: "card" }, createNode("header", {}, createNode("h3", {}, "Arrivals by hour of the week (UTC)"), colorScale(), choice), chart, caption)),
      createNode("dl", { class: "facts" }, ...facts.map(([name, value, more]) =>
        createNode("div", {}, createNode("dt", {}, name), createNode("dd", {}, value, more ? createNode("small", {}, more) : null)))))));
  }

  /* The table */

  const COLUMNS = [
    { title: "Queue", sort: (s) => subjectName(s).toLowerCase(), up: true },
    { title: "Verdict", sort: (s) => s.attention, up: true },
    { title: "Peak running", sort: (s) => s.utilisation },
    { title: "Peak in", sort: (s) => s.peak_enqueued_per_s, number: true },
    { title: "Peak out", sort: (s) => s.peak_dequeued_per_s, number: true },
    { title: "Peak depth", sort: (s) => s.peak_depth, number: true },
    { title: "Wait p95", sort: (s) => s.wait_p95_ms, number: true },
    { title: "Daily peaks", sort: (s) => (s.level ? s.slope / s.level : s.slope) },
    { title: "Trend", sort: (s) => (s.level ? s.slope / s.level : s.slope), number: true },
    { title: "Full on", sort: (s) => ({ reached: "0", date: s.saturates_on, far: "8", never: "9" }[s.saturation] ?? null), up: true },
  ];
  const state = { column: 1, up: true, verdict: null, text: "",
    kind: data.subjects.some((s) => s.kind === "queue") ? "queue" : "environment" };

  function subjectRow(subject) {
    const button = createNode("button", { type: "button", "aria-expanded": "false" },
      createNode("span", { class: "text", title: subjectName(subject) }, subjectName(subject)),
      environmentPaths.size > 1 || subject.kind === "environment" ? createNode("span", { class: "path" }, environmentPath(subject)) : null);
    const cell = (text) => createNode("td", { class: "number" }, text);
    const hasNoDate = ["never", "no_limit", "not_enough_data", "far"].includes(subject.saturation);
    const node = createNode("tr", { class: "row", on: { click: () => toggle(node, subject) } },
      createNode("td", { class: "name" }, button),
      createNode("td", {}, createNode("span", { class: `badge ${TONE[subject.verdict]}` }, subject.label)),
      createNode("td", {}, utilisationBar(subject)),
      cell(rate(subject.peak_enqueued_per_s)), cell(rate(subject.peak_dequeued_per_s)),
      cell(number(subject.peak_depth)), cell(wait(subject.wait_p95_ms)),
      createNode("td", {}, sparkline(subject)),
      createNode("td", { class: "number" }, subject.growth || createNode("span", { class: "muted" }, "–")),
      createNode("td", { class: hasNoDate ? "muted" : "" }, subject.saturationText));
    return node;
  }

  function toggle(node, subject) {
    const open = node.classList.toggle("open");
    node.querySelector("button").setAttribute("aria-expanded", String(open));
    if (open) node.after(detailRow(subject));
    else if (node.nextElementSibling?.classList.contains("detail")) node.nextElementSibling.remove();
  }

  function draw(openFirst = false) {
    const text = state.text.trim().toLowerCase();
    const ofKind = data.subjects.filter((s) => s.kind === state.kind);
    const listed = ofKind.filter((s) => (!state.verdict || s.verdict === state.verdict)
      && (!text || subjectName(s).toLowerCase().includes(text) || environmentPath(s).toLowerCase().includes(text)));
    const key = COLUMNS[state.column].sort;
    const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);
    // Sorting is stable, so equal subjects stay in order of urgency. Missing values come last in both directions.
    listed.sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      if (isMissing(left) || isMissing(right)) return Number(isMissing(left)) - Number(isMissing(right));
      return (left < right ? -1 : left > right ? 1 : 0) * (state.up ? 1 : -1);
    });
    const nodes = listed.map((subject) => subjectRow(subject));
    byId("rows").replaceChildren(...nodes);
    byId("no-matches").hidden = listed.length > 0;
    const noun = state.kind === "queue" ? "queue" : "environment";
    byId("count").textContent = listed.length === ofKind.length ? `${ofKind.length} ${noun}${ofKind.length === 1 ? "" : "s"}`
      : `${listed.length} of ${ofKind.length} ${noun}s`;
    byId("column-headers").replaceChildren(...COLUMNS.map((column, i) => createNode("th", {
      class: column.number ? "number" : null, scope: "col",
      "aria-sort": i === state.column ? (state.up ? "ascending" : "descending") : null },
      createNode("button", { type: "button", on: { click: () => {
        state.up = i === state.column ? !state.up : Boolean(column.up);
        state.column = i;
        draw();
      } } }, i === 0 && state.kind === "environment" ? "Environment" : column.title))));
    byId("verdict-filters").replaceChildren(...VERDICTS.map(([name, tone, label]) => {
      const count = ofKind.filter((s) => s.verdict === name).length;
      return count === 0 ? null : createNode("button", { type: "button", class: `tile ${tone}`,
        "aria-pressed": String(state.verdict === name), on: { click: () => {
          state.verdict = state.verdict === name ? null : name;
          draw();
        } } }, createNode("b", {}, number(count)), createNode("span", {}, label));
    }).filter(Boolean));
    if (openFirst && nodes.length) toggle(nodes[0], listed[0]);
  }

  const kinds = ["queue", "environment"].filter((kind) => data.subjects.some((s) => s.kind === kind));
  if (kinds.length > 1)
    byId("kind-filter").append(...kinds.map((kind) => createNode("button", { type: "button", "aria-pressed": String(kind === state.kind),
      on: { click: (event) => {
        state.kind = kind;
        state.verdict = null;
        for (const other of byId("kind-filter").children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
        draw();
      } } }, kind === "queue" ? "Queues" : "Environments")));
  byId("search").addEventListener("input", (event) => { state.text = event.target.value; draw(); });
  byId("show-all").addEventListener("click", () => { state.text = byId("search").value = ""; state.verdict = null; draw(); });
  byId("summary").textContent = `${timeText(data.from)} to ${timeText(data.to)} UTC, from ${data.source === "tiers" ? "ClickHouse" : "the archive"}; `
    + `peaks per second over ${width === "hour" ? "an hour" : "a minute"}. Created ${timeText(data.made)} UTC by Penstock ${data.version}.`;
  const method = [
    ["Peaks", `Counted per ${width}, shown per second. Depth and running are the highest values observed.`],
    ["Limit", "The last observed concurrency limit. A queue without a limit has no date."],
    ["Trend", "The median change of the daily peak between equal weekdays of different weeks. The line is at the level of the high days: nine days in ten are on or below it. “Rising” and “falling” mean that the 95 % interval of the change does not include zero. A trend needs at least 14 complete days."],
    ["Full on", "The day whose peak reaches the limit if the growth continues. The range comes from the uncertainty of the growth alone. Peaks at the limit cannot rise further, so close to the limit the date is too optimistic."],
    ["Falls behind", "In its busiest hours (5 % of all hours) the queue finished fewer than 90 % of the arrivals, and over the whole period fewer than 95 %. Finished means acked, dead or expired, counted per consumer group."],
    ["Catches up later", "Fewer than 90 % in the busiest hours, but at least 95 % over the whole period."],
    ["Hours of the week", "An hour without events counts as zero from the queue's first hour on. p95 is the nearest rank."],
  ];
  byId("method").append(...method.flatMap(([name, text]) => [createNode("dt", {}, name), createNode("dd", {}, text)]));
  draw(true);
})();
