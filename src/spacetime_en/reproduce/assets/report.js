"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
// Okabe and Ito's palette: told apart by all readers.
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B8A900"];
const SHAPES = ["○", "□", "◇", "△", "▽", "+"];
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, text = "", parent = null) {
  const made = name.startsWith("svg:")
    ? document.createElementNS(SVG, name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

const short = (value) => {
  if (value === 0 || (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5)) {
    return Number(value.toPrecision(3)).toLocaleString("en");
  }
  return value.toExponential(1);
};

// --- page ------------------------------------------------------------------------------------------

function page() {
  $("what").textContent = DATA.what;
  if (DATA.audit) $("title").textContent = "AUDIT: targets that are all zero";
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--page").trim() === "#14171c";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  });
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
      "stroke-dasharray": curve.trivial ? "5 4" : "none" }, "", svg);
    own.forEach(([x, y]) => {
      const dot = element("svg:circle", { cx: X(x), cy: Y(y), r: 4, fill: colour }, "", svg);
      const text = `${curve.label}: ${short(y)} at ${short(x)}`;
      element("svg:title", {}, text, dot);
      for (const kind of ["pointerenter", "click"]) dot.addEventListener(kind, () => { told.textContent = text; });
    });
    const entry = element("span", {}, "", legend);
    element("i", { style: `background:${colour}` }, "", entry);
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

// --- the view in space -----------------------------------------------------------------------------

function view(scenes) {
  const canvas = $("space");
  const context = canvas.getContext("2d");
  const state = { scene: 0, step: 0, yaw: 0.6, pitch: 0.35, zoom: 1, playing: false };
  const shown = new Map(Object.keys(scenes[0].forecasts).map((name) => [name, true]));
  scenes.forEach((scene, i) => element("option", { value: i }, `test window ${scene.window}`, $("scene")));
  [...shown.keys()].forEach((name, i) => {
    const label = element("label", {}, "", $("models"));
    const box = element("input", { type: "checkbox", checked: "", value: name }, "", label);
    label.append(` ${SHAPES[i % SHAPES.length]} ${name}`);
    box.addEventListener("change", () => { shown.set(name, box.checked); draw(); });
  });

  const scene = () => scenes[state.scene];
  const choose = (number) => {
    state.scene = number;
    const { steps } = scene();
    Object.assign($("time"), { min: steps[0], max: steps.at(-1) });
    set(steps.at(-1));
  };
  const set = (step) => {
    const { steps, lastStep } = scene();
    state.step = Math.min(Math.max(step, steps[0]), steps.at(-1));
    $("time").value = state.step;
    const after = Math.round(state.step - lastStep);
    $("step").textContent = after <= 0 ? "observed" : `${after.toLocaleString("en")} steps ahead`;
    draw();
  };

  // Positions at a step, on straight lines between the frames that are known.
  const between = (steps, frames, step) => {
    let next = steps.findIndex((s) => s >= step);
    if (next < 0) next = steps.length - 1;
    if (next === 0) return frames[0];
    const share = Math.min(1, (step - steps[next - 1]) / (steps[next] - steps[next - 1]));
    return frames[next].map((p, i) => p.map((c, k) => frames[next - 1][i][k] + share * (c - frames[next - 1][i][k])));
  };

  function draw() {
    const { x, steps, lastStep, forecasts, charge } = scene();
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const line = style.getPropertyValue("--line");
    context.textAlign = "center";
    context.textBaseline = "middle";
    // A cube around all that is true; a forecast may fall outside it, and is drawn there.
    const all = x.flat();
    const low = [0, 1, 2].map((k) => Math.min(...all.map((p) => p[k])));
    const high = [0, 1, 2].map((k) => Math.max(...all.map((p) => p[k])));
    const middle = low.map((l, k) => (l + high[k]) / 2);
    const half = Math.max(...high.map((h, k) => h - low[k])) / 2;
    const [cy, sy, cp, sp] = [Math.cos(state.yaw), Math.sin(state.yaw), Math.cos(state.pitch), Math.sin(state.pitch)];
    const size = (0.33 * Math.min(width, height) * state.zoom) / half;
    const project = (p) => {
      const [a, b, c] = p.map((value, k) => value - middle[k]);
      const [u, w] = [cy * a + sy * b, -sy * a + cy * b];
      const depth = cp * w - sp * c;
      const near = 1 / Math.max(0.2, 1 + (0.18 * depth) / half);  // what is far in front stays in front
      return [width / 2 + size * near * u, height / 2 - size * near * (sp * w + cp * c), near];
    };
    const stroke = (points, colour, thickness, dash = []) => {
      context.beginPath();
      points.forEach((p, i) => { const [a, b] = project(p); if (i) context.lineTo(a, b); else context.moveTo(a, b); });
      context.strokeStyle = colour;
      context.lineWidth = thickness;
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
    };
    const corner = (bits) => [0, 1, 2].map((k) => middle[k] + (bits & (1 << k) ? half : -half));
    for (let a = 0; a < 8; a++) {
      for (let k = 0; k < 3; k++) if (!(a & (1 << k))) stroke([corner(a), corner(a | (1 << k))], line, 1);
    }
    const now = between(steps, x, state.step);
    const observed = x.filter((_, i) => steps[i] <= Math.min(lastStep, state.step));
    const future = x.filter((_, i) => steps[i] >= lastStep && steps[i] <= state.step);
    now.forEach((place, node) => {
      const colour = COLOURS[node % COLOURS.length];
      if (observed.length > 1) stroke(observed.map((f) => f[node]), colour, 5);
      if (state.step > lastStep) stroke([...future.map((f) => f[node]), place], colour, 1.5);
      const [a, b, near] = project(place);
      context.beginPath();
      context.arc(a, b, 8 * near, 0, 2 * Math.PI);
      context.fillStyle = colour;
      context.fill();
      context.font = `bold ${Math.round(15 * near)}px system-ui, sans-serif`;
      context.fillStyle = "white";
      context.fillText(charge[node] > 0 ? "+" : "−", a, b);
    });
    Object.assign(canvas.dataset, { yaw: state.yaw.toFixed(4), pitch: state.pitch.toFixed(4), zoom: state.zoom.toFixed(4) });
    if (state.step <= lastStep) return;
    const start = between(steps, x, lastStep);
    Object.keys(forecasts).forEach((name, shape) => {
      if (!shown.get(name)) return;
      const at = Object.keys(forecasts[name]).map(Number).sort((p, q) => p - q);
      if (!at.length) return;
      const [times, frames] = [[lastStep, ...at], [start, ...at.map((t) => forecasts[name][t])]];
      const here = between(times, frames, state.step);
      const passed = frames.filter((_, i) => times[i] <= state.step);
      here.forEach((place, node) => {
        const colour = COLOURS[node % COLOURS.length];
        stroke([...passed.map((f) => f[node]), place], colour, 1, [2, 4]);
        const [a, b, near] = project(place);
        context.font = `${Math.round(19 * near)}px system-ui, sans-serif`;
        context.fillStyle = colour;
        context.fillText(SHAPES[shape % SHAPES.length], a, b);
      });
    });
  }

  const turn = (dx, dy) => {
    state.yaw += dx;
    state.pitch = Math.min(1.5, Math.max(-1.5, state.pitch + dy));
    draw();
  };
  const zoom = (factor) => { state.zoom = Math.min(8, Math.max(0.3, state.zoom * factor)); draw(); };
  const fingers = new Map();
  const apart = () => {
    const [p, q] = [...fingers.values()];
    return Math.hypot(p[0] - q[0], p[1] - q[1]);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const width = fingers.size === 2 ? apart() : 0;
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 2) zoom(apart() / width);
    else turn((event.clientX - before[0]) * 0.01, (event.clientY - before[1]) * 0.01);
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(kind, (event) => fingers.delete(event.pointerId));
  }
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY * 0.001)); },
    { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
    if (by) { event.preventDefault(); turn(...by); }
    if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.15 : 1 / 1.15);
  });

  const play = (on) => {
    state.playing = on;
    $("play").textContent = on ? "❚❚ pause" : "▶ play";
    if (!on) return;
    if (state.step >= scene().steps.at(-1)) set(scene().steps[0]);
    let before = null;
    const frame = (time) => {
      if (!state.playing) return;
      if (before !== null) {
        // The observed frames are a hundredth of the whole: they take a second of their own.
        const pace = state.step < scene().lastStep ? scene().lastStep : (scene().steps.at(-1) - scene().lastStep) / 8;
        set(state.step + (pace * Math.min(100, time - before)) / 1000);
      }
      before = time;
      if (state.step >= scene().steps.at(-1)) play(false);
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  };
  $("play").addEventListener("click", () => play(!state.playing));
  $("time").addEventListener("input", () => { play(false); set(Number($("time").value)); });
  $("scene").addEventListener("change", () => choose(Number($("scene").value)));
  document.addEventListener("themechange", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas);
  choose(0);
}

page();
DATA.tables.forEach(table);
if (DATA.scenes.length) { $("view").hidden = false; view(DATA.scenes); }
if (DATA.panels.length) { $("charts").hidden = false; DATA.panels.forEach(chart); }
if (DATA.attention.length) { $("attention").hidden = false; attention(DATA.attention); }
contents();
