"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
// Okabe and Ito's palette: told apart by all readers.
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A900"];
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

// A scene in two dimensions is seen from above, and moved; one in three dimensions is turned.
function view(scenes) {
  const canvas = $("space");
  const context = canvas.getContext("2d");
  const state = { scene: 0, step: 0, yaw: 0.6, pitch: 0.35, zoom: 1, shift: [0, 0], playing: false };
  $("scene").parentElement.hidden = scenes.length < 2;
  const shown = new Map(Object.keys(scenes[0].forecasts).map((name) => [name, true]));
  scenes.forEach((scene, i) => element("option", { value: i }, scene.title, $("scene")));
  for (const name of ["observed", "truth"]) {
    const label = element("span", {}, "", $("models"));
    element("i", { class: `key ${name}` }, "", label);
    label.append(` ${name}`);
  }
  [...shown.keys()].forEach((name, i) => {
    const label = element("label", {}, "", $("models"));
    const box = element("input", { type: "checkbox", checked: "", value: name }, "", label);
    const style = `border-color: ${COLOURS[i % COLOURS.length]}`;
    element("i", { class: "key forecast", style }, "", label);
    label.append(` ${name}`);
    box.addEventListener("change", () => { shown.set(name, box.checked); draw(); });
  });

  const scene = () => scenes[state.scene];
  const startsOf = (one) => {
    const all = Object.values(one.forecasts).flatMap((paths) => Object.keys(paths).map(Number));
    return [...new Set(all)].sort((p, q) => p - q);
  };
  const choose = (number) => {
    state.scene = number;
    const { steps, shown: [first, last], dims, limits } = scene();
    const starts = startsOf(scene());
    Object.assign(state, {
      moving: starts.length > 1,  // then every frame has forecasts of its own
      lastStep: starts.length ? starts[0] : steps.at(-1),
      first: steps[first],
      last: steps[last],
      frames: last - first,
      zoom: 1,
      shift: [0, 0],
    });
    const [across, up] = [0, 1].map((k) => limits[1][k] - limits[0][k]);
    const shape = Math.min(6, Math.max(1.3, across / up || 6));  // as wide and high as the scene
    Object.assign(canvas.style, dims === 2 ? { height: "auto", aspectRatio: shape } : { height: "", aspectRatio: "" });
    Object.assign($("time"), { min: state.first, max: state.last });
    set(state.moving ? state.first : state.last);
  };
  const set = (step) => {
    state.step = Math.min(Math.max(step, state.first), state.last);
    $("time").value = state.step;
    const after = Math.round(state.step - state.lastStep).toLocaleString("en");
    const ahead = state.step <= state.lastStep ? "observed" : `${after} steps ahead`;
    $("step").textContent = state.moving ? `step ${Math.round(state.step).toLocaleString("en")}` : ahead;
    draw();
  };

  // Positions at a step, on straight lines between the frames that are known; null: not there.
  const between = (steps, frames, step) => {
    let next = steps.findIndex((s) => s >= step);
    if (next < 0) next = steps.length - 1;
    if (next === 0 || steps[next] === step) return frames[next];
    const share = (step - steps[next - 1]) / (steps[next] - steps[next - 1]);
    return frames[next].map((p, i) => {
      const before = frames[next - 1][i];
      return p && before && p.map((c, k) => before[k] + share * (c - before[k]));
    });
  };

  const around = (points) => {
    const low = [0, 1, 2].map((k) => Math.min(...points.map((p) => p[k])));
    const high = [0, 1, 2].map((k) => Math.max(...points.map((p) => p[k])));
    return [low, high];
  };

  function draw() {
    const { x, steps, ahead, tail, forecasts, charge, bones, follow, dims, limits } = scene();
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.lineCap = "round";
    const style = getComputedStyle(document.documentElement);
    const [line, ink, grey] = ["--line", "--ink", "--truth"].map((name) => style.getPropertyValue(name));
    context.textAlign = "center";
    context.textBaseline = "middle";
    const { step, lastStep, moving } = state;
    const now = between(steps, x, step);
    const [low, high] = follow ? around(now.filter(Boolean)) : limits;
    const middle = low.map((l, k) => (l + high[k]) / 2);
    const half = Math.max(...high.map((h, k) => h - low[k])) / 2 || 1;
    const [cy, sy, cp, sp] = [Math.cos(state.yaw), Math.sin(state.yaw), Math.cos(state.pitch), Math.sin(state.pitch)];
    const flat = dims === 2;
    const sides = [0, 1].map((k) => Math.max(high[k] - low[k], 0.1 * half));
    const size = state.zoom * (flat
      ? Math.min((width - 32) / sides[0], (height - 52) / sides[1])
      : (0.33 * Math.min(width, height)) / half);
    const project = (p) => {
      const [a, b, c] = p.map((value, k) => value - middle[k]);
      if (flat) return [width / 2 + size * a + state.shift[0], height / 2 - 8 - size * b + state.shift[1], 1];
      const [u, w] = [cy * a + sy * b, -sy * a + cy * b];
      const depth = cp * w - sp * c;
      const near = 1 / Math.max(0.2, 1 + (0.18 * depth) / half);  // what is far in front stays in front
      return [width / 2 + size * near * u, height / 2 - size * near * (sp * w + cp * c), near];
    };
    const stroke = (points, colour, thickness, dash = []) => {
      context.beginPath();
      let drawing = false;  // the pen is lifted where a node is not there
      for (const p of points) {
        if (p) { const [a, b] = project(p); if (drawing) context.lineTo(a, b); else context.moveTo(a, b); }
        drawing = Boolean(p);
      }
      context.strokeStyle = colour;
      context.lineWidth = thickness;
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
    };
    const circle = (p, radius, colour, filled) => {
      const [a, b, near] = project(p);
      context.beginPath();
      context.arc(a, b, radius * near, 0, 2 * Math.PI);
      if (filled) { context.fillStyle = colour; context.fill(); return; }
      Object.assign(context, { strokeStyle: colour, lineWidth: 1.8 });
      context.stroke();
    };

    if (flat) {
      scaleBar(size, width, height, grey);
    } else {
      const corner = (bits) => [0, 1, 2].map((k) => middle[k] + (bits & (1 << k) ? half : -half));
      for (let a = 0; a < 8; a++) {
        for (let k = 0; k < 3; k++) if (!(a & (1 << k))) stroke([corner(a), corner(a | (1 << k))], line, 1);
      }
    }
    const paths = moving && ahead.length > 1;  // shown from now on; otherwise until now
    const seen = moving ? step : Math.min(lastStep, step);
    const from = tail === null ? steps[0] : seen - tail;
    const inside = (a, b) => x.filter((_, i) => steps[i] >= a && steps[i] <= b);
    const observed = inside(from, seen);
    const future = paths ? inside(step, step + ahead.at(-1)) : inside(seen, step);
    for (const [a, b] of bones) stroke([now[a], now[b]], ink, 3);
    now.forEach((place, node) => {
      if (bones.length) return;
      if (paths) stroke(place ? [place, ...future.map((f) => f[node])] : [], grey, 2);
      else if (step > seen) stroke([...future.map((f) => f[node]), place], grey, 2);
      stroke([...observed.map((f) => f[node]), ...(step > seen ? [] : [place])], ink, 3);
      if (!place) return;
      circle(place, charge ? 8 : 5, ink, true);
      if (!charge) return;
      const [a, b, near] = project(place);
      context.font = `bold ${Math.round(15 * near)}px system-ui, sans-serif`;
      context.fillStyle = style.getPropertyValue("--panel");
      context.fillText(charge[node] > 0 ? "+" : "−", a, b);
    });
    Object.assign(canvas.dataset, { yaw: state.yaw.toFixed(4), pitch: state.pitch.toFixed(4), zoom: state.zoom.toFixed(4) });
    Object.keys(forecasts).forEach((name, model) => {
      if (!shown.get(name)) return;
      const colour = COLOURS[model % COLOURS.length];
      const path = forecastAt(forecasts[name], step);
      if (!path) return;
      for (const [a, b] of bones) stroke([path.at(-1)[a], path.at(-1)[b]], colour, 2, [5, 4]);
      if (bones.length) return;
      path.at(-1).forEach((place, node) => {
        if (!place || !path[0][node]) return;
        stroke(path.map((f) => f[node]), colour, 1.8, [5, 4]);
        circle(place, 6, colour, false);
      });
    });
  }

  // The path of a forecast that is shown at a step; see Scene.forecast_at.
  function forecastAt(made, step) {
    const { x, steps, ahead } = scene();
    if (state.moving && ahead.length === 1) {
      const frame = steps.findLast((s) => s <= step);
      return made[frame - ahead[0]];
    }
    if (state.moving) {
      const start = steps.findLast((s) => s <= step);
      return made[start] && [between(steps, x, start), ...made[start]];
    }
    const start = state.lastStep;
    if (!made[start] || step <= start) return null;
    const known = ahead.map((_, i) => i).filter((i) => made[start][i].some(Boolean));
    const times = [start, ...known.map((i) => start + ahead[i])];
    const frames = [between(steps, x, start), ...known.map((i) => made[start][i])];
    if (step > times.at(-1)) return null;
    return [...frames.filter((_, i) => times[i] < step), between(times, frames, step)];
  }

  // A bar of a round length, so that a scene from above has a scale.
  function scaleBar(size, width, height, colour) {
    const power = 10 ** Math.floor(Math.log10(width / 5 / size));
    const length = [5, 2, 1].map((k) => k * power).find((l) => l * size <= width / 4) ?? power;
    const [x, y] = [16, height - 14];
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + length * size, y);
    Object.assign(context, { strokeStyle: colour, fillStyle: colour, lineWidth: 2, textAlign: "left" });
    context.stroke();
    context.font = "13px system-ui, sans-serif";
    context.fillText(`${short(length)} ${scene().unit}`, x + length * size + 8, y);
    context.textAlign = "center";
  }

  const turn = (dx, dy) => {
    if (scene().dims === 2) {
      state.shift = [state.shift[0] + 100 * dx, state.shift[1] + 100 * dy];
      draw();
      return;
    }
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
    if (state.step >= state.last) set(state.first);
    let before = null;
    const frame = (time) => {
      if (!state.playing) return;
      if (before !== null) {
        // The observed frames may be a hundredth of the whole: they take a second of their own.
        const until = Math.max(state.first, state.lastStep);
        let pace = state.step < until ? until - state.first : (state.last - until) / 8;
        if (state.moving) pace = (8 * (state.last - state.first)) / Math.max(1, state.frames);
        set(state.step + (pace * Math.min(100, time - before)) / 1000);
      }
      before = time;
      if (state.step >= state.last) play(false);
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

