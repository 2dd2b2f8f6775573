// Annotations in a chart: a line or a span on the canvas, and a flag with a tooltip above it.

const MERGED_WITHIN_PX = 7;
const LINE_ALPHA = 0.55;
const SPAN_ALPHA = 0.08;
const COLORS = {
  incident: "--bad",
  pause: "--warn",
  resume: "--ok",
  limit: "--warn",
  purge: "--bad",
  seek: "--p95",
  requeue: "--p95",
  deploy: "--info",
  delivered: "--info",
  failed: "--warn",
  lease_lost: "--warn",
  dead: "--bad",
  requeued: "--p95",
};

/** The name of the colour of a kind of annotation. */
export const markColor = (kind) => COLORS[kind] ?? "--muted";

/** One line that describes an annotation. */
export function describeAnnotation({ kind, text, subject }) {
  const author = subject && subject !== "local" ? ` (${subject})` : "";
  return `${kind}: ${text}${author}`;
}

/**
 * Return the marks of a chart: `select` takes the annotations of the time that it shows; `draw` draws them on the canvas
 * and puts their flags into the element `layer`. `readColor(name)` returns a colour of the style sheet.
 */
export function createMarks(readColor) {
  const layer = document.createElement("div");
  layer.className = "marks";
  layer.setAttribute("aria-hidden", "true"); // the list of events has the same texts
  let spans = [];

  function select(annotations, { start, end }) {
    spans = annotations.map((annotation) => toSpan(annotation, end)).filter((span) => span.to >= start && span.from <= end);
  }

  function draw(plot) {
    const flags = spans.map((span) => ({ span, left: Math.max(0, plot.valToPos(span.from, "x")) }));
    layer.replaceChildren(...mergeNear(flags).map(createFlag));
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const { from, to, kind } of spans) {
      const [left, right] = [from, to].map((seconds) => plot.valToPos(seconds, "x", true));
      ctx.fillStyle = ctx.strokeStyle = readColor(markColor(kind));
      if (right > left) {
        ctx.globalAlpha = SPAN_ALPHA;
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
      }
      ctx.globalAlpha = LINE_ALPHA;
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  return { layer, select, draw };
}

/** The time of an annotation in seconds. A moment has no length; an ongoing one lasts until the end of the chart. */
export function toSpan(annotation, chartEnd) {
  const from = Date.parse(annotation.at) / 1_000;
  const to = annotation.ongoing ? chartEnd : annotation.end ? Date.parse(annotation.end) / 1_000 : from;
  return { from, to: Math.max(from, to), kind: annotation.kind, text: describeAnnotation(annotation) };
}

/** Join flags that would cover each other. The most severe kind gives the colour. */
export function mergeNear(flags) {
  const merged = [];
  for (const flag of flags.toSorted((a, b) => a.left - b.left)) {
    const last = merged.at(-1);
    if (last && flag.left - last.left < MERGED_WITHIN_PX) last.spans.push(flag.span);
    else merged.push({ left: flag.left, spans: [flag.span] });
  }
  return merged;
}

function createFlag({ left, spans }) {
  const flag = document.createElement("span");
  const isIncident = spans.some(({ kind }) => kind === "incident");
  flag.className = "mark";
  flag.dataset.kind = isIncident ? "incident" : spans[0].kind;
  flag.dataset.text = spans.map(({ text }) => text).join("\n");
  flag.style.setProperty("--color", `var(${markColor(flag.dataset.kind)})`);
  flag.style.left = `${left}px`;
  flag.classList.toggle("at-end", left > 180);
  return flag;
}
