(() => {
  "use strict";
  const root = document.getElementById("viewer");
  const data = JSON.parse(document.getElementById("flow-data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const coords = new Int16Array(bytes(data.coords).buffer);
  const colours = data.colours.map((c) => ({ ...c, values: new Float32Array(bytes(c.values).buffer) }));
  const { n, unit, frames } = data;
  const last = frames.length - 1;

  const canvas = root.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const slider = root.querySelector("input[type=range]");
  const play = root.querySelector("#play");
  const choice = root.querySelector("select");
  const moment = root.querySelector("#moment");
  const spoken = root.querySelector("#spoken");
  const picked = root.querySelector("#picked");
  const legend = root.querySelector("#legend");
  const strip = [...root.querySelectorAll("#strip button")];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const start = { turn: -0.6, tilt: 0.3, zoom: 1 };
  let view = { ...start }, place = 0, printing = false, running = null, waiting = false;
  const order = new Uint32Array(n).map((_, i) => i);
  const screen = new Float32Array(2 * n), depth = new Float32Array(n);
  let palette = [], shade = new Uint8Array(n);

  // --- colours: viridis for values, blue - grey - red for differences ------------------------
  const viridis = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779",
    "#6ece58", "#b5de2b", "#fde725"];
  const blueRed = ["#2166ac", "#4393c3", "#92c5de", "#c8c8c8", "#f4a582", "#d6604d", "#b2182b"];
  const classes = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566",
    "#999933"];
  const mix = (a, b, t) => "#" + [1, 3, 5].map((i) => {
    const [p, q] = [parseInt(a.substr(i, 2), 16), parseInt(b.substr(i, 2), 16)];
    return Math.round(p + (q - p) * t).toString(16).padStart(2, "0");
  }).join("");
  const ramp = (stops) => Array.from({ length: 64 }, (_, k) => {
    const x = (k / 63) * (stops.length - 1), i = Math.min(Math.floor(x), stops.length - 2);
    return mix(stops[i], stops[i + 1], x - i);
  });

  function paint() {
    const colour = colours[choice.value], { low, high, kind } = colour;
    palette = kind === "class" ? classes : ramp(kind === "difference" ? blueRed : viridis);
    const top = palette.length - 1;
    for (let i = 0; i < n; i++) {
      const v = colour.values[i];
      shade[i] = kind === "class" ? v % palette.length
        : Math.max(0, Math.min(top, Math.round(((v - low) / (high - low || 1)) * top)));
    }
    legend.replaceChildren();
    const add = (tag, text, css) => {
      const part = document.createElement(tag);
      part.textContent = text;
      Object.assign(part.style, css);
      legend.append(part);
    };
    if (kind === "class") {
      colour.labels.forEach((label, i) => {
        add("i", "", { background: palette[i % palette.length] });
        add("span", label, {});
      });
    } else {
      add("span", format(low), {});
      add("b", "", { background: `linear-gradient(to right, ${palette.join(",")})` });
      add("span", format(high), {});
    }
    legend.setAttribute("aria-label", `Colours: ${colour.name}` +
      (kind === "class" ? "" : `, from ${format(low)} to ${format(high)}`));
  }

  const format = (v) => Number(v.toPrecision(4)).toString().replace("-", "\u2212");

  // --- drawing ----------------------------------------------------------------------------
  function project(x, y, z, w, h) {
    const c = Math.cos(view.turn), s = Math.sin(view.turn);
    const ct = Math.cos(view.tilt), st = Math.sin(view.tilt);
    const a = c * x - s * y, b = s * x + c * y;
    const near = b * ct - z * st, up = b * st + z * ct;
    const k = (view.zoom * Math.min(w, h) * 1.1) / (near + 4.2);
    return [w / 2 + a * k, h * 0.48 - up * k, near];
  }

  function draw() {
    waiting = false;
    const scale = window.devicePixelRatio || 1;
    const w = canvas.clientWidth, h = canvas.clientHeight;
    if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
      canvas.width = Math.round(w * scale);
      canvas.height = Math.round(h * scale);
    }
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, w, h);
    const night = dark.matches && !printing;
    box(w, h, night ? "#3a4150" : "#d5d9e0", night ? "#9aa3b2" : "#5c6470");
    const i = Math.min(Math.floor(place), Math.max(last - 1, 0)), t = place - i;
    const from = 3 * n * i, to = 3 * n * Math.min(i + 1, last);
    for (let k = 0; k < n; k++) {
      const at = (j) => ((1 - t) * coords[from + 3 * k + j] + t * coords[to + 3 * k + j]) / unit;
      const [x, y, near] = project(at(0), at(1), at(2), w, h);
      screen[2 * k] = x; screen[2 * k + 1] = y; depth[k] = near;
    }
    order.sort((a, b) => depth[b] - depth[a]);
    const size = Math.max(1.4, Math.min(4, 90 / Math.sqrt(n))) * view.zoom;
    pen.globalAlpha = 0.85;
    for (const k of order) {
      pen.fillStyle = palette[shade[k]];
      pen.beginPath();
      pen.arc(screen[2 * k], screen[2 * k + 1], (size * 4.2) / (depth[k] + 4.2), 0, 6.2832);
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  function box(w, h, line, ink) {
    const corner = (x, y, z) => project(x, y, z, w, h);
    const edges = [];
    for (const a of [-1, 1]) for (const b of [-1, 1]) {
      edges.push([[a, b, -1], [a, b, 1]], [[a, -1, b], [a, 1, b]], [[-1, a, b], [1, a, b]]);
    }
    pen.strokeStyle = line;
    pen.lineWidth = 1;
    for (const [p, q] of edges) {
      const [x0, y0] = corner(...p), [x1, y1] = corner(...q);
      pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, y1); pen.stroke();
    }
    pen.fillStyle = ink;
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    const labels = [["axis 1", 0, -1.18, -1], ["axis 2", 1.18, 0, -1], [data.up + " \u2191", -1, -1, 1.16]];
    for (const [text, x, y, z] of labels) {
      const [a, b] = corner(x, y, z);
      pen.fillText(text, Math.max(40, Math.min(w - 40, a)), b);
    }
  }

  function refresh() {
    if (!waiting) { waiting = true; requestAnimationFrame(draw); }
  }

  // --- where we are -----------------------------------------------------------------------
  function show(value, speak) {
    place = Math.max(0, Math.min(last, value));
    slider.value = place;
    const frame = frames[Math.round(place)];
    const text = frame.name === "X" ? "input" : frame.name.startsWith("D")
      ? `${frame.name}, time ${frame.time.toFixed(2)}` : `behind ${frame.name}`;
    moment.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    strip.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.name === frame.name)));
    if (speak) spoken.textContent = text;
    refresh();
  }

  function stop() {
    cancelAnimationFrame(running);
    clearTimeout(running);
    running = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  }

  function go() {
    if (place >= last) show(0, false);
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    if (still.matches) {          // steps in place of motion
      const step = () => {
        show(Math.floor(place) + 1, true);
        if (place >= last) stop(); else running = setTimeout(step, 900);
      };
      running = setTimeout(step, 900);
      return;
    }
    let before = performance.now();
    const speed = Math.max(last / 12000, 0.0015);   // frames a millisecond; 12 s at most
    const tick = (now) => {
      show(place + (now - before) * speed, false);
      before = now;
      if (place >= last) { stop(); show(place, true); } else running = requestAnimationFrame(tick);
    };
    running = requestAnimationFrame(tick);
  }

  // --- hands ------------------------------------------------------------------------------
  slider.max = last;
  slider.addEventListener("input", () => { stop(); show(Number(slider.value), false); });
  slider.addEventListener("change", () => show(Number(slider.value), true));
  play.addEventListener("click", () => (running ? stop() : go()));
  root.querySelector("#reset").addEventListener("click", () => { view = { ...start }; refresh(); });
  choice.addEventListener("change", () => { paint(); refresh(); });
  strip.forEach((b) => b.addEventListener("click", () => { stop(); show(Number(b.dataset.end), true); }));

  const turnBy = (a, b) => {
    view.turn += a;
    view.tilt = Math.max(-1.5, Math.min(1.5, view.tilt + b));
    refresh();
  };
  const zoomBy = (k) => { view.zoom = Math.max(0.4, Math.min(5, view.zoom * k)); refresh(); };
  canvas.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => turnBy(-0.1, 0), ArrowRight: () => turnBy(0.1, 0),
      ArrowUp: () => turnBy(0, 0.1), ArrowDown: () => turnBy(0, -0.1),
      "+": () => zoomBy(1.15), "=": () => zoomBy(1.15), "-": () => zoomBy(1 / 1.15),
      Home: () => { view = { ...start }; refresh(); }, " ": () => play.click(),
    };
    if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
  });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = [event.clientX, event.clientY];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      turnBy((event.clientX - held[0]) * 0.008, (event.clientY - held[1]) * 0.008);
      held = [event.clientX, event.clientY];
    } else pick(event);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { held = null; });

  function pick(event) {
    const frame = canvas.getBoundingClientRect();
    const x = event.clientX - frame.left, y = event.clientY - frame.top;
    let best = -1, nearest = 100;
    for (let k = 0; k < n; k++) {
      const d = (screen[2 * k] - x) ** 2 + (screen[2 * k + 1] - y) ** 2;
      if (d < nearest) { nearest = d; best = k; }
    }
    picked.textContent = best < 0 ? "" : `row ${data.rows[best]}: ` + colours.map((c) =>
      `${c.name} ${c.kind === "class" ? c.labels[c.values[best]] : format(c.values[best])}`).join(", ");
  }

  dark.addEventListener("change", refresh);
  addEventListener("beforeprint", () => { printing = true; draw(); });
  addEventListener("afterprint", () => { printing = false; draw(); });
  new ResizeObserver(refresh).observe(canvas);
  paint();
  show(0, false);
})();
