"use strict";
// What pages can't do without a script: charts, following a topic, stopping a search. Everything else works without it.
// Text from records only ever becomes textContent.

(() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const drawCharts = (root) => {
    for (const place of root.querySelectorAll(".chart[data-chart]")) {
      const points = JSON.parse(place.dataset.chart);
      if (points.length < 2 || typeof uPlot === "undefined") continue;
      const axis = { stroke: color("--quiet"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
      place.textContent = "";
      new uPlot({
        width: Math.max(280, place.clientWidth),
        height: 180,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        legend: { show: false },
        series: [{}, { label: place.dataset.label, stroke: color("--mark"), width: 2, points: { show: points.length < 80 } }],
        axes: [axis, { ...axis, size: 70 }],
        scales: { y: { range: (_, low, high) => [0, Math.max(1, high)] } },
      }, [points.map((one) => one[0] / 1000), points.map((one) => one[1])], place);
      place.removeAttribute("data-chart");
    }
  };

  const showFieldsOfMode = (form) => {
    const mode = form.elements.mode;
    const update = () => {
      for (const one of form.querySelectorAll("[data-for]")) one.hidden = one.dataset.for !== mode.value;
    };
    mode.addEventListener("change", update);
    update();
  };

  const offerStop = () => {
    const stop = document.querySelector("[data-stop]");
    if (!stop || document.readyState === "complete") return;
    stop.hidden = false;
    stop.addEventListener("click", () => { window.stop(); stop.hidden = true; });
    window.addEventListener("load", () => { stop.hidden = true; });
  };

  const cell = (row, text, options = {}) => {
    const made = document.createElement(options.tag || "td");
    if (options.number) made.className = "n";
    if (options.link) {
      const link = document.createElement("a");
      link.href = options.link;
      link.textContent = text;
      made.append(link);
    } else if (options.kind) {
      const inner = document.createElement(options.kind === "null" ? "em" : "code");
      inner.textContent = text.slice(0, 400);
      made.append(inner);
    } else {
      made.textContent = text;
    }
    row.append(made);
  };

  const addRecord = (table, record) => {
    const row = document.createElement("tr");
    row.className = "new";
    const time = record.timestamp_ms === null ? "–" : new Date(record.timestamp_ms).toISOString().replace("T", " ");
    cell(row, String(record.partition), { number: true });
    cell(row, String(record.offset), { tag: "th", number: true, link: `${table.dataset.topic}/${record.partition}/${record.offset}` });
    cell(row, time);
    cell(row, record.key.text, { kind: record.key.kind });
    cell(row, record.value.text, { kind: record.value.kind });
    cell(row, record.headers.map((one) => `${one.name}=${one.value.text}`).join(" ").slice(0, 400));
    const body = table.tBodies[0];
    body.prepend(row);
    while (body.rows.length > 500) body.deleteRow(-1);
  };

  const followTopic = (button) => {
    const table = document.querySelector("[data-rows]");
    const state = document.getElementById("tail-state");
    if (!table || !window.EventSource) return;
    let source = null;
    let count = 0;
    const end = (text) => {
      if (source) source.close();
      source = null;
      button.setAttribute("aria-pressed", "false");
      button.textContent = "Follow what comes";
      state.textContent = text;
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      if (source) { end(`${count} records came.`); return; }
      const form = button.form;
      const query = new URLSearchParams({ decode: form.elements.decode.value });
      if (form.elements.partition.value) query.set("partition", form.elements.partition.value);
      source = new EventSource(`${button.dataset.tail}?${query}`);
      button.setAttribute("aria-pressed", "true");
      button.textContent = "Stop following";
      state.textContent = "Connecting …";
      source.addEventListener("begun", () => { state.textContent = "Following: new records come first."; });
      source.addEventListener("record", (event) => { count += 1; addRecord(table, JSON.parse(event.data)); });
      source.addEventListener("failed", (event) => end(JSON.parse(event.data).error));
      source.onerror = () => { if (source && source.readyState === EventSource.CLOSED) end("The server ended it."); };
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    drawCharts(document);
    const form = document.querySelector("form[data-modes]");
    if (form) showFieldsOfMode(form);
    const follow = document.querySelector("[data-tail]");
    if (follow) followTopic(follow);
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    // A renewal takes the focus away from what it replaces: whoever is there isn't disturbed.
    if (document.hidden || event.target.contains(document.activeElement)) event.preventDefault();
  });
  document.addEventListener("htmx:afterSwap", (event) => drawCharts(event.target));
  offerStop();
})();
