/* The page. What the server tells is shown as text only, never as markup: names and keys are what clients chose. */
"use strict";
(() => {
  const INTERVAL_MS = 2000, PATIENCE_MS = 8000;
  const POINTS = 900; /* half an hour */
  const ROWS = 50;
  const byId = (id) => document.getElementById(id);

  /* ---- figures as text ---- */

  const number = (value) => {
    if (value === null || value === undefined || !isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1e9) return (value / 1e9).toFixed(2) + " G";
    if (size >= 1e6) return (value / 1e6).toFixed(2) + " M";
    if (size >= 1e5) return (value / 1e3).toFixed(0) + " k";
    if (size >= 1e4) return (value / 1e3).toFixed(1) + " k";
    return size >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1);
  };
  const bytes = (value) => {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let unit = 0;
    for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
    return (unit > 0 && value < 100 ? value.toFixed(1) : Math.round(value)) + " " + units[unit];
  };
  const ms = (value) => {
    if (value === null || value === undefined || !isFinite(value)) return "–";
    if (value < 1) return Math.round(value * 1000) + " µs";
    if (value < 100) return value.toFixed(value < 10 ? 2 : 1) + " ms";
    if (value < 1000) return Math.round(value) + " ms";
    return seconds(value / 1000);
  };
  const seconds = (value) => {
    if (value < 60) return value < 10 ? value.toFixed(1) + " s" : Math.round(value) + " s";
    if (value < 3600) return Math.floor(value / 60) + " min " + Math.floor(value % 60) + " s";
    if (value < 86400) return Math.floor(value / 3600) + " h " + Math.floor((value % 3600) / 60) + " min";
    return Math.floor(value / 86400) + " d " + Math.floor((value % 86400) / 3600) + " h";
  };
  const clock = (unix) => new Date(Number(unix) * 1000).toLocaleTimeString("en-GB");

  /* ---- elements ---- */

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const bar = (part, isLow) => {
    const outer = element("span", undefined, isLow ? "bar low" : "bar"), inner = element("span");
    inner.style.width = Math.max(0, Math.min(100, part * 100)).toFixed(1) + "%";
    outer.setAttribute("aria-hidden", "true");
    outer.append(inner);
    return outer;
  };
  /* A request, of which the first lines are shown. */
  const command = (text) => {
    const made = element("span", text, "key command");
    made.title = text;
    return made;
  };
  const tag = (text, kind) => element("span", text, "tag " + (kind || ""));

  /* A table: columns are [title, class]; rows are { cells, className, server }, a cell a text or an element. The first
     cell names its row. With several servers rows say which one they are about. */
  const fill = (id, caption, columns, rows, empty) => {
    const table = byId(id);
    if (rows.some((row) => row.server !== undefined)) {
      columns = [...columns, ["server"]];
      rows = rows.map((row) => ({ ...row, cells: [...row.cells, row.server || ""] }));
    }
    if (table.tHead && table.tHead.rows[0].cells.length !== columns.length) table.replaceChildren();
    if (!table.tHead) {
      table.append(element("caption", caption, "hidden"));
      const row = table.createTHead().insertRow();
      for (const [title, className] of columns) {
        const head = element("th", title, className);
        head.scope = "col";
        row.append(head);
      }
      table.append(element("tbody"));
    }
    const body = document.createDocumentFragment();
    for (const { cells, className } of rows) {
      const row = element("tr", undefined, className);
      cells.forEach((content, place) => {
        const cell = element(place === 0 ? "th" : "td", undefined, columns[place][1]);
        if (place === 0) cell.scope = "row";
        cell.append(content instanceof Node ? content : String(content));
        row.append(cell);
      });
      body.append(row);
    }
    if (rows.length === 0) {
      const row = element("tr"), cell = element("td", empty, "empty");
      cell.colSpan = columns.length;
      row.append(cell);
      body.append(row);
    }
    table.tBodies[0].replaceChildren(body);
  };

  /* An answer is a list, or says why there is none. */
  const listOf = (answer) => (Array.isArray(answer) ? answer : []);
  const emptyText = (answer, otherwise) => (answer && answer.error ? answer.error : otherwise);

  /* ---- distributions ---- */

  /* What stands for a bucket, in ms: its one whole number of µs, or its geometric middle. */
  const middle = (bucket, steps) => {
    const low = bucket > 0 ? Math.pow(2, (bucket - 1) / steps) : 0, high = Math.pow(2, bucket / steps);
    const whole = Math.floor(high + 1e-9);
    return (whole - Math.floor(low + 1e-9) <= 1 ? whole : Math.sqrt(low * high)) / 1000;
  };
  const distribution = (flat) => {
    const made = new Map();
    for (let i = 0; i + 1 < flat.length; i += 2) made.set(flat[i], flat[i + 1]);
    return made;
  };
  const difference = (now, before) => {
    const made = new Map();
    for (const [bucket, count] of now) {
      const more = count - ((before && before.get(bucket)) || 0);
      if (more > 0) made.set(bucket, more);
    }
    return made;
  };
  const PARTS = [0.5, 0.9, 0.99, 0.999];
  const percentiles = (buckets, steps) => {
    const sorted = [...buckets].sort((a, b) => a[0] - b[0]);
    const all = sorted.reduce((sum, [, count]) => sum + count, 0);
    return PARTS.map((part) => {
      let passed = 0;
      for (const [bucket, count] of sorted) {
        passed += count;
        if (passed >= part * all) return middle(bucket, steps);
      }
      return null;
    });
  };

  /* ---- history ---- */

  const history = { times: [], requests: [], local: [], errors: [], latency: new Map() };
  let before = null;
  let chosen = "";

  const keep = (list, value) => {
    list.push(value);
    if (list.length > POINTS) list.shift();
  };
  /* An operation that was not there, or not told of, has had nothing so far. */
  const keepLatency = (name, values) => {
    const count = history.times.length;
    let lists = history.latency.get(name);
    if (!lists) {
      lists = PARTS.map(() => new Array(count - 1).fill(null));
      history.latency.set(name, lists);
    }
    lists.forEach((list, place) => keep(list, values ? values[place] : null));
  };

  /* What has happened between two answers. */
  const measure = (stats) => {
    const passed = before ? (stats.time - before.time) / 1000 : 0;
    const distributions = new Map(), fresh = new Map(), all = new Map();
    let errors = 0;
    for (const operation of stats.operations) {
      const old = before && before.operations.get(operation.name);
      const made = { ...operation, rate: null, errorRate: null, parts: null };
      if (operation.buckets) distributions.set(operation.name, distribution(operation.buckets));
      if (before && passed > 0) {
        made.rate = (operation.count - (old ? old.count : 0)) / passed;
        made.errorRate = (operation.errors - (old ? old.errors : 0)) / passed;
        errors += made.errorRate;
        const oldBuckets = before.distributions.get(operation.name);
        if (operation.buckets && (oldBuckets || !old)) {
          const more = difference(distributions.get(operation.name), oldBuckets);
          /* Those wait for other clients, and would be all that is seen. */
          if (!operation.name.includes("|blocking")) {
            for (const [bucket, count] of more) all.set(bucket, (all.get(bucket) || 0) + count);
          }
          if (more.size > 0) made.parts = percentiles(more, stats.bucket_steps);
        }
      }
      fresh.set(operation.name, made);
    }
    const old = before && before.counters;
    const rate = (name) => (old && passed > 0 ? (stats.counters[name] - old[name]) / passed : null);
    const each = (name, call) => (rate(call) > 0 ? rate(name) / rate(call) : null);
    const measured = { passed, operations: fresh, rate, each, errors, parts: all.size > 0 ? percentiles(all, stats.bucket_steps) : null };
    if (before && passed > 0) {
      keep(history.times, stats.time / 1000);
      keep(history.requests, rate("requests_total"));
      keep(history.local, rate("requests_answered_locally_total"));
      keep(history.errors, errors);
      const names = new Set([...history.latency.keys(), ...distributions.keys()]);
      names.delete("");
      keepLatency("", measured.parts);
      for (const name of names) keepLatency(name, fresh.has(name) ? fresh.get(name).parts : null);
    }
    before = { time: stats.time, counters: stats.counters, operations: new Map(stats.operations.map((o) => [o.name, o])), distributions, process: stats.process_id };
    return measured;
  };

  /* ---- charts ---- */

  let charts = null;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const chart = (id, series, axis, log) => {
    const box = byId(id), line = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid"), width: 1 } };
    box.replaceChildren();
    return new uPlot({
      width: Math.max(240, box.clientWidth), height: window.innerWidth <= 640 ? 190 : 250,
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: true }, y: log ? { distr: 3, log: 10 } : { range: (u, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [{ ...line, space: 80, values: (u, all) => all.map(clock) }, { ...line, size: 62, values: (u, all) => all.map((v) => (v === null ? "" : axis(v))) }],
      series: [{ label: "time", value: (u, v) => (v === null ? "–" : clock(v)) }].concat(
        series.map(([label, name, dash]) => ({ label, stroke: color(name), width: 2, dash, spanGaps: false, points: { show: false }, value: (u, v) => axis(v) }))),
    }, [[], ...series.map(() => [])], box);
  };
  const makeCharts = () => {
    charts = {
      throughput: chart("throughput", [["requests/s", "--c1"], ["by Headgate/s", "--c2", [6, 3]], ["errors/s", "--c3", [2, 3]]], number, false),
      latency: chart("latency", [["p50", "--c1"], ["p90", "--c2", [8, 3]], ["p99", "--c3"], ["p99.9", "--c4", [2, 3]]], ms, true),
    };
    draw();
  };
  const latest = (list) => (list.length > 0 ? list[list.length - 1] : null);
  const show = (one, data) => {
    one.setData(data);
    if (one.cursor.idx === null || one.cursor.left < 0) one.setLegend({ idx: data[0].length > 0 ? data[0].length - 1 : null });
  };
  const draw = () => {
    if (history.times.length === 0) return;
    const parts = history.latency.get(chosen) || PARTS.map(() => history.times.map(() => null));
    show(charts.throughput, [history.times, history.requests, history.local, history.errors]);
    show(charts.latency, [history.times, ...parts]);
    byId("throughput").setAttribute("aria-label", "Throughput over time, now " + number(latest(history.requests)) + " requests each second");
    byId("latency").setAttribute("aria-label", "Latency of " + (chosen || "all operations") + " over time, now p50 " + ms(latest(parts[0])) + ", p99 " + ms(latest(parts[2])));
  };
  const resize = () => {
    for (const id of ["throughput", "latency"]) {
      charts[id].setSize({ width: Math.max(240, byId(id).clientWidth), height: window.innerWidth <= 640 ? 190 : 250 });
    }
  };

  /* ---- sections ---- */

  const TILES = [
    ["Requests", (s, m) => number(m.rate("requests_total")) + " /s", "taken from clients"],
    ["Median", (s, m) => ms(m.parts && m.parts[0]), "half of the requests were answered faster (p50)"],
    ["Slowest 1 %", (s, m) => ms(m.parts && m.parts[2]), "one request in a hundred took longer (p99)"],
    ["Errors", (s, m) => number(m.passed ? m.errors : null) + " /s", "measured requests answered by an error", (s, m) => m.errors > 0],
    ["Refused", (s, m) => number(m.passed ? (m.rate("limit_refused_total") || 0) + (m.rate("deny_rejected_total") || 0) : null) + " /s", "by limits and [deny:NAME] rules"],
    ["Clients", (s) => number(s.counters.clients_connected), "connections of applications; Redis sees only the lanes"],
    ["Lanes", (s) => number(s.counters.lanes_shared + s.counters.lanes_exclusive), "connections to Redis that carry them all"],
    ["Batches", (s, m) => number(m.each("requests_forwarded_total", "upstream_writes_total")) + " / " + number(m.each("requests_forwarded_total", "upstream_reads_total")),
      "requests that one write to Redis carried, and one read from it"],
    ["Leases", (s) => number(s.counters.lease_held || 0), "locks and permits that are watched now"],
    ["Memory", (s) => bytes(s.resident_bytes), "of this process, in RAM"],
  ];
  const showTiles = (stats, measured) => {
    const box = byId("tiles");
    if (box.children.length === 0) {
      for (const [name, , what] of TILES) {
        const tile = element("div", undefined, "tile");
        tile.append(element("div", name, "name"), element("div", "–", "value"), element("p", what, "what"));
        box.append(tile);
      }
    }
    TILES.forEach(([, value, , isBad], place) => {
      const tile = box.children[place];
      tile.children[1].textContent = value(stats, measured);
      tile.classList.toggle("bad", Boolean(isBad && isBad(stats, measured)));
    });
  };

  const showChoice = (stats) => {
    const select = byId("operation"), names = stats.operations.filter((o) => o.buckets).map((o) => o.name).sort();
    if (chosen && !names.includes(chosen)) names.push(chosen);
    const known = [...select.options].slice(1).map((option) => option.value);
    if (names.join("\n") === known.join("\n") || document.activeElement === select) return;
    select.replaceChildren(select.options[0], ...names.map((name) => {
      const option = element("option", name);
      option.value = name;
      return option;
    }));
    select.value = chosen;
  };
  const choose = (name) => {
    chosen = name;
    byId("operation").value = name;
    draw();
    render();
  };
  const showOperations = (stats, measured) => {
    const wanted = byId("filter").value.trim().toLowerCase();
    const found = [...measured.operations.values()].filter((o) => o.name.toLowerCase().includes(wanted))
      .sort((a, b) => (b.rate || 0) - (a.rate || 0) || b.count - a.count);
    const focused = document.activeElement && document.activeElement.dataset.operation;
    fill("operations-table", "Operations",
      [["Operation"], ["per second", "number"], ["p50", "number"], ["p99", "number"], ["p99.9", "number wide"], ["errors/s", "number"], ["mean", "number wide"], ["longest", "number wide"], ["total", "number"], ["in", "number wide"], ["out", "number wide"]],
      found.slice(0, ROWS).map((o) => {
        const pick = element("button", o.name, "pick key");
        pick.type = "button";
        pick.dataset.operation = o.name;
        pick.setAttribute("aria-pressed", String(o.name === chosen));
        return {
          className: o.name === chosen ? "picked" : "",
          cells: [pick, number(o.rate), ms(o.parts && o.parts[0]), ms(o.parts && o.parts[2]), ms(o.parts && o.parts[3]),
            o.errorRate > 0 ? tag(number(o.errorRate), "bad") : number(o.errorRate), ms(o.sum_us / o.count / 1000), ms(o.max_us / 1000), number(o.count), bytes(o.in), bytes(o.out)],
        };
      }), wanted ? "No operation has that in its name." : "Nothing was measured yet. Is [latency] enabled?");
    if (focused !== undefined) {
      for (const pick of document.querySelectorAll("#operations-table .pick")) if (pick.dataset.operation === focused) pick.focus({ preventScroll: true });
    }
    byId("operations-note").textContent = found.length > ROWS ? "The busiest " + ROWS + " of " + number(found.length) + "; the filter finds the others." : "";
  };

  const showLimits = (stats) => {
    const rows = listOf(stats.limits).map((line) => line.offender !== undefined
      ? { className: "offender", server: line.server, cells: [element("span", line.offender, "key"), "", number(line.refused), "", line.next_admission_ms > 0 ? tag(ms(line.next_admission_ms), "bad") : tag("now", "good")] }
      : { className: "rule", server: line.server, cells: [line.rule, number(line.admitted), number(line.refused + line.delayed + line.observed), element("span", line.admits + " per " + line.per + (line.action === "reject" ? "" : ", " + line.action)), number(line.tracked) + " tracked"] });
    fill("limits-table", "Limits and who was refused most",
      [["Rule, or who"], ["admitted", "number"], ["refused", "number"], ["allows", "wide"], ["next", "number"]], rows, "There are no limits: see [limit:NAME] in the configuration.");
  };

  const showLeases = (stats) => {
    const rows = listOf(stats.leases).filter((line) => line.key !== undefined).map((line) => {
      const left = element("span", ms(Math.max(0, line.left)));
      left.append(bar(line.left / line.lease, line.left < line.lease / 4));
      const kind = { held: "good", self: "good", ownerless: "bad", "max-hold": "bad", checking: "warn", unhealed: "warn" }[line.state];
      return { server: line.server, cells: [element("span", line.key, "key"), left, seconds(line.held), tag(line.state, kind), element("span", line.owner, "key"), number(line.renewals), line.rule] };
    });
    const notes = listOf(stats.leases).filter((line) => line.note).map((line) => ({ server: line.server, cells: [line.note, "", "", "", "", "", ""] }));
    fill("leases-table", "Leases", [["Key"], ["left", "number"], ["held for", "number"], ["state"], ["owner", "wide"], ["renewed", "number"], ["rule", "wide"]],
      rows.concat(notes), "No lock or permit is watched now. [lease:NAME] says which keys are.");
  };

  const showRequests = (stats) => {
    const client = (line) => (line.name ? line.name + " " : "") + line.address;
    fill("slow-table", "Slow requests", [["Request"], ["at", "number"], ["queued", "number"], ["Redis", "number"], ["writing", "number wide"], ["client", "wide"]],
      listOf(stats.slow).map((line) => ({ server: line.server, cells: [command(String(line.command)), clock(line.time), ms(line.queued_us / 1000), ms(line.redis_us / 1000), line.writing_us < 0 ? "–" : ms(line.writing_us / 1000), client(line)] })),
      emptyText(stats.slow, "None so far."));
    fill("big-table", "Large requests", [["Request"], ["at", "number"], ["request", "number"], ["reply", "number"], ["client", "wide"]],
      listOf(stats.big).map((line) => ({ server: line.server, cells: [command(String(line.command)), clock(line.time), bytes(line.bytes_in), bytes(line.bytes_out), client(line)] })),
      emptyText(stats.big, "None so far."));
    const keys = listOf(stats.hot_keys).filter((line) => line.key !== undefined), most = keys.length > 0 ? keys[0].count : 1;
    fill("hot-table", "Hot keys", [["Key"], ["about", "number"], ["beside the first"]],
      keys.map((line) => ({ server: line.server, cells: [element("span", line.key, "key"), number(line.count), bar(line.count / most, false)] })), emptyText(stats.hot_keys, "None so far."));
    fill("events-table", "Events", [["What"], ["last", "number"], ["times", "number"], ["kind"]],
      listOf(stats.events).map((line) => ({ server: line.server, cells: [element("span", line.event, "key"), clock(line.time), number(line.count), tag(String(line.kind).replaceAll("_", " "), { error: "bad", warning: "warn" }[line.severity])] })),
      emptyText(stats.events, "Nothing happened so far."));
  };

  const showClients = (stats) => {
    const { count, rows } = stats.clients;
    byId("clients-note").textContent = number(count) + " are connected" + (count > rows.length ? "; these " + rows.length + " have most kept for them, then most under way" : "") +
      ". Shared: it uses lanes together with others. Anything else is why it has a lane of its own. Pending: requests without a reply.";
    fill("clients-table", "Clients", [["Address"], ["name"], ["user", "wide"], ["identity", "wide"], ["lane"], ["pending", "number"], ["kept in", "number wide"], ["kept out", "number"], ["idle", "number"], ["age", "number wide"]],
      rows.map((row) => ({ server: row.server, cells: [element("span", row.address, "key"), row.name, row.user, row.identity, tag(row.lane), number(row.pending), bytes(row.qbuf), bytes(row.obuf), ms(row.idle_ms), seconds(row.age)] })), "Nobody is connected.");
  };
  const showLanes = (stats) => {
    const { count, rows } = stats.lanes;
    byId("lanes-note").textContent = number(count) + " connections to Redis" + (count > rows.length ? "; these " + rows.length + " wait for most replies" : "") +
      ". Shared: for many clients. Exclusive: of one client. Pooled: clean, waiting for one. Pending: requests that Redis has not answered yet.";
    fill("lanes-table", "Lanes", [["Lane"], ["use"], ["state"], ["user", "wide"], ["db", "number wide"], ["pending", "number"], ["unsent", "number"], ["idle", "number"], ["failures", "number wide"]],
      rows.map((row) => ({ server: row.server, cells: [row.worker + "." + row.id, tag(row.use), tag(row.state, row.state === "ready" ? "good" : "warn"), row.user, number(row.db), number(row.pending), bytes(row.obuf), ms(row.idle_ms), number(row.failures)] })), "There are no connections to Redis.");
  };

  let meanings = null;
  const showCounters = (stats, measured) => {
    if (!byId("counters").querySelector("details").open || !meanings) return;
    fill("counters-table", "Counters", [["Counter"], ["value", "number"], ["per second", "number"], ["meaning", "wide"]],
      Object.entries(stats.counters).map(([name, value]) => {
        const meaning = meanings[name] || { kind: "gauge", help: "", section: "" };
        const head = element("span", name, "key");
        head.title = meaning.help;
        return { cells: [head, /bytes/.test(name) ? bytes(value) : number(value), meaning.kind === "counter" ? number(measured.rate(name)) : "", meaning.help] };
      }), "");
  };

  const showState = (text, kind) => {
    const pill = byId("state");
    if (pill.textContent !== text) pill.textContent = text;
    pill.className = "pill " + kind;
  };
  /* Whether there are several servers. */
  let several = false;
  const showServers = (stats) => {
    byId("servers").hidden = !several;
    fill("servers-table", "Servers", [["Redis"], ["version"], ["state"], ["requests", "number"], ["clients", "number"], ["lanes", "number"], ["workers", "number wide"], ["pool", "wide"]],
      listOf(stats.servers).map((line) => ({ server: line.server, cells: [element("span", line.upstream, "key"), line.redis_version, tag(line.up ? "up" : "away", line.up ? "good" : "bad"), number(line.requests), number(line.clients), number(line.lanes), number(line.threads), line.pool] })), "");
  };
  const showProcess = (stats) => {
    const target = several ? stats.servers.map((line) => line.server).join(", ") : stats.upstream;
    const where = stats.machine + " → " + target + (stats.redis_version ? " (Redis " + stats.redis_version + ")" : "");
    if (byId("where").textContent !== where) byId("where").textContent = where;
    document.title = (stats.ready ? "" : "! ") + "Headgate " + target;
    showState(stats.ready ? (stats.reload_ok ? "ready" : "ready, but the last reload failed") : stats.state, stats.ready ? (stats.reload_ok ? "good" : "") : "bad");
    byId("foot").textContent = "Headgate " + stats.version + ", process " + stats.process_id + ", " + stats.threads + (stats.threads === 1 ? " worker" : " workers") + (several ? "" : ", pool = " + stats.pool) +
      ", up " + seconds(stats.uptime) + ", configuration of " + clock(stats.reloaded) + (stats.config_file ? " from " + stats.config_file : "");
  };

  let last = null;
  const render = () => {
    if (!last) return;
    const { stats, measured } = last;
    showProcess(stats);
    showServers(stats);
    showTiles(stats, measured);
    showChoice(stats);
    showOperations(stats, measured);
    showLimits(stats);
    showLeases(stats);
    showRequests(stats);
    showClients(stats);
    showLanes(stats);
    showCounters(stats, measured);
  };

  /* ---- asking ---- */

  let paused = false, answered = Date.now();
  const getJson = async (path) => {
    const answer = await fetch(path, { cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!answer.ok) throw new Error("answered by " + answer.status);
    return answer.json();
  };
  const update = async () => {
    try {
      const stats = await getJson("/stats.json");
      answered = Date.now();
      several = stats.servers !== undefined;
      /* Each server has its own of that name. */
      if (several) for (const operation of stats.operations) operation.name = operation.server + " " + operation.name;
      /* Another process begins at 0. */
      if (before && before.process !== stats.process_id) before = null;
      last = { stats, measured: measure(stats) };
      render();
      draw();
    } catch (error) {
      showState("no answer for " + seconds((Date.now() - answered) / 1000), "bad");
    }
  };
  const run = async () => {
    if (!paused && !document.hidden) await update();
    setTimeout(run, INTERVAL_MS);
  };

  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").textContent = paused ? "Go on" : "Pause";
    byId("pause").setAttribute("aria-pressed", String(paused));
  });
  byId("operation").addEventListener("change", (event) => choose(event.target.value));
  byId("filter").addEventListener("input", render);
  byId("operations-table").addEventListener("click", (event) => {
    const name = event.target.dataset.operation;
    if (name !== undefined) choose(name === chosen ? "" : name);
  });
  byId("counters").querySelector("details").addEventListener("toggle", async () => {
    if (!meanings) meanings = await getJson("/counters.json").catch(() => null);
    render();
  });
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", makeCharts);
  makeCharts();
  run();
})();
