// What several views show alike.

import { showing } from "../api.js";
import { facts, h, number, range, show, table, word } from "../dom.js";
import { sentence } from "../fields.js";
import { nameOf } from "../own.js";
import { NAMES } from "../state.js";

// Characters from which a cell is a sentence.
const LONG = 40;
export const PLACE = ["model", "system", "gpus", "global_batch", "seq_len", "plan", "framework", "precision", "tp", "pp", "ep", "zero", "set", "measured"];

export function scenarioCard(i, heading, ...children) {
  return h("section", { class: `card scenario of-${i}`, "data-scenario": NAMES[i], "aria-label": `Scenario ${NAMES[i]}` },
    h("h2", {}, `${NAMES[i]}  `, h("span", { class: "quiet" }, heading)), ...children);
}

// What was predicted before the measured runs that were pasted, and what moved most.
export function before(answer, value, unit) {
  if (!answer.prior) return [];
  const moved = Object.entries(answer.posterior_factors ?? {}).sort(([, a], [, b]) => Math.abs(Math.log(b.factor)) - Math.abs(Math.log(a.factor))).slice(0, 2);
  return [["Before the measured runs", number(value, unit, "prior")],
    ["Moved most", moved.map(([name, { factor }]) => `${name.replaceAll("_", " ")} x ${factor.toFixed(2)}`).join(", ")]];
}

// A scenario that has no answer, and why. `words` say what the answer no means here.
export function noCard(i, answer, heading, words = "No plan fits") {
  const errors = answer.refused ?? answer.problems ?? [];
  const wrong = answer.refused && errors.some((error) => error.path);
  return scenarioCard(i, heading, h("p", { class: "big words" }, wrong ? "Check the input" : answer.refused ? "No answer" : words),
    reasons(errors));
}

// Why the answer is no, or there is none.
export function reasons(errors) {
  return h("ul", { class: "said", role: "alert" }, errors.map((error) => {
    const text = h("span", {}, sentence(error));
    error.shown = () => text.replaceChildren(sentence(error)); // a hint came after the answer
    return h("li", {}, error.path ? h("strong", {}, `${error.path}: `) : "", text);
  }));
}

export function assumed(answers) {
  const known = answers.map((answer, i) => [NAMES[i], answer?.assumptions ?? []]).filter(([, said]) => said.length);
  if (!known.length) return "";
  return h("details", { class: "card" }, h("summary", {}, word("Assumptions", "assumption"), ` (${known.reduce((n, [, said]) => n + said.length, 0)})`),
    ...known.map(([name, said]) => h("div", {}, known.length > 1 ? h("h3", { class: "group" }, name) : "", h("ul", { class: "said" }, said.map((text) => h("li", {}, text))))));
}

// The plan of a scenario: the one that is given, else the best of a search; with its trees.
export async function planned(desk, i) {
  const flags = desk.flags(PLACE, i);
  const run = desk.flags(["tokens"], i);
  let found = null;
  let plan = flags.plan;
  if (!complete(plan)) {
    found = await desk.ask("search", { ...flags, top: 8 });
    if (!found.plans?.length) return { ...found, flags: { ...flags, ...run } };
    plan = found.plans[0].plan;
  }
  const answer = await desk.ask("estimate", { ...flags, ...run, plan });
  // What is exported names the plan only where the user did.
  return showing({ ...answer, found, flags: { ...flags, ...run }, exact: { ...flags, plan } }, answer.presentation);
}

// A text that names a degree is a plan; one that names choices alone (precision=fp8) is searched with.
export function complete(plan) {
  return Boolean(plan) && /(^|\s)(tp|pp|dp|cp|ep|zero|mbs)\d/.test(plan);
}

// Flags with what is usual for those that are not given, the given ones first.
export function withUsual(flags, usual) {
  const missing = Object.entries(usual).filter(([name]) => !(name in flags));
  return { ...flags, ...Object.fromEntries(missing) };
}

export function fits(answer) {
  const words = { yes: "fits", no: "does not fit", too_close: "borderline" };
  return h("span", { class: `tag ${answer.fits}` }, words[answer.fits] ?? answer.fits);
}

// The 90 % interval below a number; nothing where it has none or is given.
export function sure(ends, unit, more = "") {
  if (!ends || ends[0] === ends[1]) return "";
  return h("small", { class: "sure quiet", title: "90 % interval" }, h("span", { class: "whole" }, range(ends, unit)), more);
}

// The answer's numbers as it is shown everywhere: label, value with its unit, 90 % interval; `but` stand elsewhere.
export function shown(answer, but = []) {
  return (answer.presentation?.numbers ?? []).filter(({ name }) => !but.includes(name)).map((one) => [word(one.label),
    h("span", {}, named(answer, one), one["90%"] ? h("small", { class: "sure quiet", title: "90 % interval" }, h("span", { class: "whole" }, one["90%"])) : "")]);
}

// One of them by its name, with the exact value.
export function named(answer, one) {
  const found = typeof one === "string" ? answer.presentation?.numbers?.find(({ name }) => name === one) : one;
  const value = answer[found?.name] ?? answer.results?.[found?.name];
  return typeof value === "number" ? h("data", { value, "data-name": found.name }, found.text) : h("span", { "data-name": found?.name }, found?.text ?? "–");
}

// A table of the answer by its title, as it is shown everywhere, the first row marked; nothing where it has none.
export function tableOf(answer, title, heading = title, caption = "") {
  const found = answer.presentation?.tables?.find((one) => one.title === title);
  if (!found) return "";
  const columns = found.headers.map((head, i) => ({ title: head, word: head, right: found.right[i], of: (row) => row[i] }));
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, heading)),
    table(caption, columns.map((column, i) => ({ ...column, long: !found.right[i] && found.rows.some((row) => row[i].length > LONG) })),
      found.rows, (row) => !title && row === found.rows[0], heading));
}

// Every table and list of the answer but those that stand elsewhere, as they are shown everywhere.
export function restOf(answer, but = []) {
  const { tables = [], lists = [] } = answer.presentation ?? {};
  return [...tables.filter(({ title }) => !but.includes(title)).map(({ title }) => tableOf(answer, title)),
    ...lists.map(({ title, lines }) => h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, title)),
      h("ul", { class: "said" }, lines.map((text) => h("li", {}, text)))))];
}

// How sure an answer is, in words.
export function howSure(answer) {
  return answer.interval_reason ? h("p", { class: "quiet" }, "How sure: ", h("span", { "data-name": "interval_reason" }, answer.interval_reason)) : "";
}

// The 90 % interval of one of the answer's numbers, as it is shown everywhere.
export function surely(answer, name) {
  return answer.presentation?.numbers?.find((one) => one.name === name)?.["90%"] ?? "";
}

// The peak of memory with its interval, and how likely the plan is to fit by it.
export function peak(answer, ...more) {
  const p = answer.fit_probability ?? null;
  const words = p === null ? "" : `, ${p > 0.99 ? "above 99 %" : p < 0.01 ? "below 1 %" : `${Math.round(100 * p)} %`} likely to fit`;
  const span = surely(answer, "peak_memory_bytes");
  return h("span", {}, named(answer, "peak_memory_bytes"), ...more, h("small", { class: "sure quiet", title: "90 % interval" }, h("span", { class: "whole" }, span), words));
}

export function memoryMeter(answer) {
  const share = answer.peak_memory_bytes / answer.memory_capacity_bytes;
  const bar = h("div");
  bar.style.width = `${Math.min(100, 100 * share)}%`;
  return h("div", { class: `meter ${answer.fits}`, role: "meter", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * share), "aria-label": "Memory used at the peak" }, bar);
}

export function headingOf(answer, flags) {
  const gpus = answer.gpus ?? flags.gpus;
  return `${answer.model ?? nameOf(flags.model, "your model")} on ${gpus ? `${show(gpus, "count")} × ` : ""}${answer.system ?? nameOf(flags.system, "your system")}`;
}

export { facts, number, range, show, word, h };
