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

function theme() {
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--page").trim() === "#14171c";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  });
}

// --- the view in space -----------------------------------------------------------------------------

function view(scenes) {
  const canvas = $("space");
  const context = canvas.getContext("2d");
  const state = { scene: 0, step: 0, yaw: 0.6, pitch: 0.35, zoom: 1, playing: false };
  $("scene").parentElement.hidden = scenes.length < 2;
  const shown = new Map(Object.keys(scenes[0].forecasts).map((name) => [name, true]));
  scenes.forEach((scene, i) => element("option", { value: i }, scene.title, $("scene")));
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
    const after = Math.round(state.step - lastStep).toLocaleString("en");
    const ahead = state.step <= lastStep ? "observed" : `${after} steps ahead`;
    // In a recording every frame has a forecast of its own: there is no "ahead".
    $("step").textContent = lastStep < steps[0] ? `step ${Math.round(state.step).toLocaleString("en")}` : ahead;
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

  const around = (points) => {
    const low = [0, 1, 2].map((k) => Math.min(...points.map((p) => p[k])));
    const high = [0, 1, 2].map((k) => Math.max(...points.map((p) => p[k])));
    return [low.map((l, k) => (l + high[k]) / 2), Math.max(...high.map((h, k) => h - low[k])) / 2 || 1];
  };

  function draw() {
    const { x, steps, lastStep, forecasts, charge, bones, follow } = scene();
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
    const now = between(steps, x, state.step);
    // A cube around all that is true, or around where the nodes are now; a forecast may fall outside it.
    const [middle, half] = follow ? around(now) : around(x.flat());
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
    const observed = x.filter((_, i) => steps[i] <= Math.min(lastStep, state.step));
    const future = x.filter((_, i) => steps[i] >= lastStep && steps[i] <= state.step);
    const ink = style.getPropertyValue("--ink");
    for (const [a, b] of bones) stroke([now[a], now[b]], ink, 3);
    now.forEach((place, node) => {
      if (bones.length) return;
      const colour = COLOURS[node % COLOURS.length];
      if (observed.length > 1) stroke(observed.map((f) => f[node]), colour, 5);
      if (state.step > lastStep) stroke([...future.map((f) => f[node]), place], colour, 1.5);
      const [a, b, near] = project(place);
      context.beginPath();
      context.arc(a, b, 8 * near, 0, 2 * Math.PI);
      context.fillStyle = colour;
      context.fill();
      if (!charge) return;
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
      if (state.step > times.at(-1)) return;
      for (const [a, b] of bones) stroke([here[a], here[b]], COLOURS[shape % COLOURS.length], 2, [5, 4]);
      if (bones.length) return;
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
        const pace = state.step < scene().lastStep ? scene().lastStep - scene().steps[0] : (scene().steps.at(-1) - scene().lastStep) / 8;
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

