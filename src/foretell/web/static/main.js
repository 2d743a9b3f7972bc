// The page: reads its state from the address, draws the form, asks, and shows the view.

import { ask, get, Refused } from "./api.js";
import { explainWords, h, learn } from "./dom.js";
import { drawForm, drawScenarios, flags, markWrong, sentence, titleOf } from "./fields.js";
import { Card, theme } from "./figure.js";
import { address, current, MOST, NAMES, read, state, write } from "./state.js";
import { exportCard } from "./export.js";
import { Import } from "./import.js";
import accuracy from "./views/accuracy.js";
import clusters from "./views/clusters.js";
import cost from "./views/cost.js";
import diagnose, { measured } from "./views/diagnose.js";
import launch, { pasted } from "./views/launch.js";
import network from "./views/network.js";
import posttraining from "./views/posttraining.js";
import scaling from "./views/scaling.js";
import sensitivities from "./views/sensitivities.js";
import serving from "./views/serving.js";
import timeline from "./views/timeline.js";
import training from "./views/training.js";
import { Work } from "./work.js";

const VIEWS = { training, serving, "post-training": posttraining, launch, diagnose, cost, clusters, scaling, network, sensitivities, timeline, accuracy };
// Fields that decide which others there are.
const CHOICES = ["what", "work", "mode"];
const PAUSE_MS = 140;

const main = document.getElementById("answer");
const status = document.getElementById("status");
const form = document.getElementById("question");
const change = document.getElementById("change");
const work = new Work(document.getElementById("work"), cancel, refresh);
let running = null;
let timer = null;
let cards = new Map();
let slots = new Map();

function view() { return VIEWS[state.view] ?? training; }

// ---- what a view may use

class Desk {
  constructor(signal) { this.signal = signal; this.asked = []; this.theme = theme(); }

  get names() { return state.scenarios.map((_, i) => NAMES[i]); }
  get at() { return state.at; }
  get find() { return state.find; }
  flags(names, i = state.at) { return flags(state.scenarios[i], names); }

  // One answer for every scenario, or what is wrong with it.
  async each(question) {
    const told = await Promise.all(state.scenarios.map(async (scenario, i) => {
      try { return await question(i); } catch (error) {
        if (!(error instanceof Refused)) throw error;
        return { refused: error.errors };
      }
    }));
    if (!this.signal.aborted) this.complain(told);
    return told;
  }

  async ask(verb, given) {
    const id = work.begin(verb);
    try { return await ask(verb, given, this.signal, (told) => work.tell(id, told)); } finally { work.end(id); }
  }

  get(path) { return get(path, this.signal); }

  complain(told) {
    markWrong(told[state.at]?.refused ?? told[state.at]?.problems ?? []);
  }

  // The place of a name in the view: what was there is replaced.
  put(name, ...children) {
    if (this.signal.aborted) return;
    if (name === "summary") this.answered ??= performance.now();
    if (!slots.has(name)) { slots.set(name, h("div", { class: name === "summary" ? "cards" : undefined, id: name })); main.append(slots.get(name)); }
    slots.get(name).replaceChildren(...children.flat().filter(Boolean));
  }

  // Whether a figure has been asked for since the view was opened.
  has(key) { return cards.has(key); }

  card(key, title, options = {}) {
    if (!cards.has(key)) {
      const made = new Card(key, title, options);
      cards.set(key, made);
      if (!slots.has("figures")) { slots.set("figures", h("div", { class: "figures", id: "figures" })); main.append(slots.get("figures")); }
      slots.get("figures").append(made.element);
    }
    cards.get(key).call(title);
    return cards.get(key);
  }

  async figure(key, title, request, options = {}) {
    const card = this.card(key, title, options);
    card.wait();
    const figure = await request();
    if (!this.signal.aborted) await card.draw(figure);
    return card;
  }

  figureOf(key, title, questions, names, options = {}) {
    if (this.signal.aborted) return null; // a button of an answer that is being replaced
    const own = questions.map((question, i) => [question, names[i]]).filter(([question]) => question);
    if (!own.length) { this.card(key, title, options).nothing(); return null; }
    return this.figure(key, title, () => this.ask(`figures ${options.kind ?? key}`, { questions: own.map(([question]) => question), names: own.map(([, name]) => name), theme: this.theme }), options);
  }

  // Ask the view anew: for views with a form of their own.
  again() { refresh(); }
  export(asked) { this.put("taken", asked.length ? exportCard(state.view, asked) : ""); }
  say(text) { if (!this.signal.aborted) status.textContent = text; }
}

// ---- asking

async function refresh() {
  clearTimeout(timer);
  running?.abort();
  running = new AbortController();
  const desk = new Desk(running.signal);
  main.setAttribute("aria-busy", "true");
  work.start();
  const began = performance.now();
  try {
    const said = await view().show(desk);
    if (desk.signal.aborted) return;
    desk.say(`${said ? `${said} · ` : ""}${Math.round((desk.answered ?? performance.now()) - began)} ms`);
  } catch (error) {
    if (error.name === "AbortError" || desk.signal.aborted) return;
    // Nothing of an earlier answer stays beside a question that has none.
    for (const name of slots.keys()) if (name !== "figures") desk.put(name);
    for (const card of cards.values()) card.nothing();
    if (!(error instanceof Refused)) { desk.say("The server cannot be reached"); rest(); throw error; }
    desk.put("trouble", trouble("No answer", error.errors));
    desk.say("No answer");
  }
  rest();
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
}

function rest() {
  main.setAttribute("aria-busy", "false");
  work.stop();
}

// The server is told by the closed connections, and ends the work.
function cancel() {
  running?.abort();
  clearTimeout(timer);
  rest();
  status.textContent = "Cancelled";
  work.cancelled();
}

export function trouble(title, errors) {
  return h("section", { class: "card alert", role: "alert" }, h("h2", {}, title),
    h("ul", {}, errors.map((error) => h("li", {}, error.path ? h("strong", {}, `${error.path}: `) : "", sentence(error)))));
}

function groups() { return view().groups(current()); }

function soon(name) {
  write();
  if (CHOICES.includes(name)) { draw(); document.getElementById(`field-${name}`).focus(); }
  titles();
  later();
}

// The form, and what is said of the question where the form is folded away.
function draw() {
  drawForm(groups(), soon, { set: (values) => { Object.assign(current(), values); write(); draw(); later(); }, open: () => files.open() });
  titles();
}

function titles() {
  drawScenarios(pick, add, remove);
  change.querySelector("span").textContent = `${state.scenarios.length > 1 ? `${NAMES[state.at]}: ` : ""}${titleOf(current())}`;
}

function fold(open) {
  form.classList.toggle("open", open);
  change.setAttribute("aria-expanded", open ? "true" : "false");
}

// What was dropped or pasted, in its place.
function use(found, text, file) {
  const held = JSON.stringify({ ...found, file });
  const scenario = current();
  if (found.kind === "system") Object.assign(scenario, { own: "file", system_file: held, gpus: "" });
  if (found.kind === "model") Object.assign(scenario, { own_model: "file", model_file: held });
  if (found.kind === "measured" && state.view === "diagnose") measured(text);
  else if (found.kind === "measured") { scenario.measured = text; if (!["training", "serving"].includes(state.view)) state.view = "training"; }
  if (found.kind === "launch") { pasted(text); state.view = "launch"; }
  if (["system", "model"].includes(found.kind) && groups().length === 0) state.view = "training";
  window.history.pushState(null, "", address());
  open();
}

// What is under way answers a question that has changed: it is given up at once, not when the next is asked.
function later() {
  running?.abort();
  main.setAttribute("aria-busy", "true");
  work.start();
  clearTimeout(timer);
  timer = setTimeout(refresh, PAUSE_MS);
}

// ---- moving about

function open(fresh = true) {
  const chosen = view();
  document.title = `${chosen.title} · Foretell`;
  document.getElementById("views").replaceChildren(...Object.entries(VIEWS).map(([name, { title }]) => h("li", {},
    h("a", { href: address(name), "aria-current": name === state.view ? "page" : undefined, onclick: (event) => go(event, name) }, title))));
  // Not scrollIntoView, which would also move where the Tab key begins.
  const [nav, here] = [document.querySelector("nav"), document.querySelector("nav [aria-current]")];
  nav.scrollLeft = here.offsetLeft - nav.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
  document.querySelector(".desk").classList.toggle("alone", groups().length === 0);
  change.hidden = groups().length === 0;
  draw();
  if (fresh) {
    fold(false);
    for (const card of cards.values()) card.gone();
    cards = new Map();
    slots = new Map();
    main.replaceChildren();
    main.setAttribute("data-view", state.view);
  }
  return refresh();
}

function go(event, name) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  window.history.pushState(null, "", address(name));
  state.view = name;
  open();
  document.querySelector("nav [aria-current]")?.focus();
}

function pick(i) { state.at = i; write(); open(false); document.querySelectorAll(".pick")[i]?.focus(); }

function add() {
  if (state.scenarios.length >= MOST) return;
  state.scenarios.push({ ...current() });
  pick(state.scenarios.length - 1);
}

function remove() {
  if (state.scenarios.length <= 1) return;
  state.scenarios.splice(state.at, 1);
  pick(Math.max(0, state.at - 1));
}

window.addEventListener("popstate", () => { read(); open(); });
window.addEventListener("foretell:find", (event) => { state.find = event.detail; write(); later(); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
change.addEventListener("click", () => fold(change.getAttribute("aria-expanded") !== "true"));
document.getElementById("open-import").addEventListener("click", () => files.open());
form.addEventListener("submit", (event) => event.preventDefault());
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });

async function lists() {
  const [models, systems, chips] = await Promise.all(["models", "systems", "chips"].map((kind) => get(`api/catalog/${kind}`)));
  const option = (entry) => h("option", { value: entry.id }, entry.name === entry.id ? "" : entry.name);
  document.getElementById("models").append(...models.map(option));
  document.getElementById("systems").append(...chips.map(option), ...systems.map(option));
}

const files = new Import(use);
learn(await get("static/words.json"));
explainWords();
read();
if (!VIEWS[state.view]) state.view = "training";
// Who comes without a question is told what to do, until the first change.
const first = document.getElementById("first");
first.hidden = window.location.search.length > 1;
form.addEventListener("input", () => { first.hidden = true; });
write();
await Promise.all([open(), lists()]);
