// --- page ------------------------------------------------------------------------------------------

function page() {
  document.title = `spacetime-en: ${DATA.title}`;
  for (const id of ["title", "what", "note"]) $(id).textContent = DATA[id];
  theme();
  for (const [term, text] of Object.entries(DATA.facts)) {
    element("dt", {}, term, $("facts"));
    element("dd", {}, text, $("facts"));
  }
}

function contents() {
  for (const section of document.querySelectorAll("main > section:not([hidden]), .table")) {
    const title = section.querySelector("h2");
    if (title && section.id !== "tables") element("a", { href: `#${section.id}` }, title.textContent, $("contents"));
  }
}

// --- tables ----------------------------------------------------------------------------------------

function table(made) {
  const box = element("div", { class: made.name === "published" ? "table audit" : "table", id: `table-${made.name}` });
  element("h2", {}, made.title, box);
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": made.title }, "", box);
  const grid = element("table", {}, "", scroll);
  const head = element("tr", {}, "", element("thead", {}, "", grid));
  const body = element("tbody", {}, "", grid);
  const rows = made.rows.map(([label, cells]) => {
    const row = element("tr", {}, "", body);
    element("th", { scope: "row" }, label, row);
    for (const cell of cells) element("td", cell.value === null ? { class: "none" } : {}, cell.text, row);
    return { row, label, cells };
  });
  ["model", ...made.columns].forEach((name, column) => {
    const cell = element("th", { scope: "col", "aria-sort": "none" }, "", head);
    element("button", { type: "button" }, name, cell).addEventListener("click", () => {
      const up = cell.getAttribute("aria-sort") !== "ascending";
      for (const other of head.children) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = ({ label, cells }) => (column === 0 ? label : cells[column - 1].value);
      rows.sort((a, b) => {
        const [p, q] = [key(a), key(b)];
        if (p === null || q === null) return (p === null) - (q === null);  // what is not known comes last
        const order = typeof p === "string" ? p.localeCompare(q) : p - q;
        return up ? order : -order;
      });
      body.append(...rows.map(({ row }) => row));
    });
  });
  for (const note of made.notes) element("p", { class: "note" }, note, box);
  $("tables").append(box);
}

// --- curves ----------------------------------------------------------------------------------------

function ticksOf(low, high, log) {
  if (!log) {
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
    const found = [];
    for (let t = Math.ceil(low / step) * step; t <= high + 1e-9 * step; t += step) found.push(t);
    return found;
  }
  const decades = Math.log10(high / low);
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of decades > 3 ? [1] : [1, 2, 5]) {
      const t = factor * 10 ** power;
      if (t >= low && t <= high) found.push(t);
    }
  }
  return found;
}

function chart(panel) {
  const figure = element("figure", { id: `panel-${panel.name}` }, "", $("panels"));
  element("figcaption", {}, panel.title, figure);
  const narrow = matchMedia("(max-width: 40rem)").matches;  // letters stay as large as on a wide screen
  const [W, H, left, bottom, top, right] = narrow ? [360, 300, 58, 44, 12, 14] : [560, 360, 66, 44, 12, 14];
  const svg = element("svg:svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": panel.title }, "", figure);
  // A logarithm has no place for zero.
  const known = (c) => c.x.map((x, i) => [x, c.y[i]]).filter(([x, y]) => (!panel.log_x || x > 0) && (!panel.log_y || y > 0));
  const points = panel.curves.flatMap(known);
  if (!points.length) return;
  const span = (values, log) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    if (log) return [low / 1.15, high * 1.15];
    const edge = 0.04 * (high - low) || 1;
    return [low - edge, high + edge];
  };
  const ranges = [span(points.map((p) => p[0]), panel.log_x), span(points.map((p) => p[1]), panel.log_y)];
  const scale = ([low, high], log, from, to) => (value) => {
    const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  };
  const X = scale(ranges[0], panel.log_x, left, W - right);
  const Y = scale(ranges[1], panel.log_y, H - bottom, top);
  for (const t of panel.ticks.length ? panel.ticks : ticksOf(...ranges[0], panel.log_x)) {
    element("svg:line", { class: "grid-line", x1: X(t), x2: X(t), y1: top, y2: H - bottom }, "", svg);
    element("svg:text", { x: X(t), y: H - bottom + 16, "text-anchor": "middle" }, short(t), svg);
  }
  for (const t of ticksOf(...ranges[1], panel.log_y)) {
    element("svg:line", { class: "grid-line", x1: left, x2: W - right, y1: Y(t), y2: Y(t) }, "", svg);
    element("svg:text", { x: left - 6, y: Y(t) + 4, "text-anchor": "end" }, short(t), svg);
  }
  element("svg:text", { x: (left + W) / 2, y: H - 8, "text-anchor": "middle" }, panel.x, svg);
  element("svg:text", { x: 14, y: (H - bottom) / 2, "text-anchor": "middle",
    transform: `rotate(-90 14 ${(H - bottom) / 2})` }, panel.y, svg);
  const legend = element("div", { class: "legend" }, "", figure);
  const told = element("div", { class: "told", "aria-live": "polite" }, "", figure);
  panel.curves.forEach((curve, place) => {
    const colour = curve.trivial ? "var(--muted)" : COLOURS[place % COLOURS.length];
    const own = known(curve);
    const path = own.map(([x, y], i) => `${i ? "L" : "M"}${X(x)},${Y(y)}`).join("");
    element("svg:path", { d: path, fill: "none", stroke: colour, "stroke-width": 2,
      "stroke-dasharray": curve.trivial ? "5 4" : place < COLOURS.length ? "none" : "9 3" }, "", svg);
    own.forEach(([x, y]) => {
      const dot = element("svg:circle", { cx: X(x), cy: Y(y), r: 4, fill: colour }, "", svg);
      const text = `${curve.label}: ${short(y)} at ${short(x)}`;
      element("svg:title", {}, text, dot);
      for (const kind of ["pointerenter", "click"]) dot.addEventListener(kind, () => { told.textContent = text; });
    });
    const entry = element("span", {}, "", legend);
    const line = curve.trivial ? "dotted" : place < COLOURS.length ? "solid" : "dashed";  // colours begin again
    element("i", { style: `border-top: 3px ${line} ${colour}` }, "", entry);
    entry.append(curve.label);
  });
}

// --- attention -------------------------------------------------------------------------------------

function attention(blocks) {
  const kinds = ["features", "positions", "velocities"];
  const weights = blocks.flatMap((b) => kinds.flatMap((k) => b[k].flat()));
  const [low, high] = [Math.min(...weights), Math.max(...weights)];
  $("scale").textContent = `Pale: ${short(low)}, full: ${short(high)}.`;
  blocks.forEach((block, number) => {
    for (const kind of kinds) {
      const map = block[kind];
      const figure = element("figure", {}, "", $("maps"));
      element("figcaption", {}, `block ${number + 1}, ${kind}`, figure);
      const svg = element("svg:svg", { viewBox: `0 0 ${map.length} ${map.length}`, role: "img",
        "aria-label": `Attention to ${kind} in block ${number + 1}` }, "", figure);
      map.forEach((row, t) => row.forEach((weight, s) => {
        const cell = element("svg:rect", { x: s, y: t, width: 1.02, height: 1.02,
          fill: `color-mix(in oklab, var(--accent) ${(100 * (weight - low)) / (high - low || 1)}%, var(--panel))` }, "", svg);
        element("svg:title", {}, `t = ${t}, s = ${s}: ${short(weight)}`, cell);
      }));
    }
  });
}

page();
DATA.tables.forEach(table);
if (DATA.tables.length === 1) $("view").before($("tables"));  // a leaderboard is the first thing to see
if (DATA.scenes.length) { $("view").hidden = false; view(DATA.scenes); }
if (DATA.panels.length) { $("charts").hidden = false; DATA.panels.forEach(chart); }
if (DATA.attention.length) { $("attention").hidden = false; attention(DATA.attention); }
contents();
