// Accuracy: first contacts, errors with something held out of the fits, and published steps down to a row.

import { digits, facts, h, number, show, table } from "../dom.js";
import { csv, save } from "../figure.js";

let known = null;
let apart = null;
let ledger = null;

export default {
  title: "Accuracy",
  groups: () => [],

  async show(desk) {
    known ??= await desk.get("api/validate/published");
    apart ??= await desk.get("api/validate/held-out");
    ledger ??= await desk.get("api/validate/first-contact");
    if (!document.getElementById("find")) desk.put("search", search(desk.find));
    const wanted = desk.find.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = known.filter((row) => wanted.every((word) => text(row).includes(word)));
    const errors = rows.map((row) => row.error).filter((error) => error !== null);
    desk.put("summary", firstContact(ledger), heldOut(apart), h("section", { class: "card" }, h("h2", {}, "In sample: the runs below"),
      h("p", { class: "big" }, number(median(errors.map(Math.abs)), "share", "median"), h("small", {}, " median error of a step")),
      h("p", { class: "quiet" }, h("data", { value: rows.length, "data-name": "rows" }, `${rows.length} published runs`), ` of ${new Set(rows.map((row) => row.source)).size} sources. Coefficients were fitted with such runs in sight.`)));
    await desk.figure("accuracy", "Published and predicted step times", () => desk.get(`api/figures/accuracy?theme=${desk.theme}&find=${encodeURIComponent(desk.find)}`), { wide: true });
    desk.put("rows", h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Every run"),
      h("button", { type: "button", class: "small", onclick: () => save("foretell-accuracy.csv", csv([Object.keys(rows[0] ?? {}), ...rows.map(Object.values)]), "text/csv") }, "CSV")),
    table("Signed error: above zero where the prediction is slower", [
      { title: "model", of: (row) => row.model },
      { title: "chip", of: (row) => row.chip.split(": ")[1] },
      { title: "GPUs", unit: "count", of: (row) => row.gpus },
      { title: "batch × sequence", of: (row) => `${row.global_batch} × ${row.seq_len}` },
      { title: "plan", of: (row) => h("code", {}, row.plan) },
      { title: "published", unit: "s", of: (row) => row.measured_s },
      { title: "predicted", unit: "s", of: (row) => row.predicted_s },
      { title: "error", unit: "signed", of: (row) => h("span", { class: Math.abs(row.error ?? 0) > 0.25 ? "off" : undefined }, row.error === null ? "not modelled" : show(row.error, "signed")) },
      { title: "source", long: true, of: (row) => row.source },
    ], rows)));
    return `${digits(rows.length, 4)} runs`;
  },
};

const HEADLINES = [["training", "step_s", "Training step"], ["serving", "tpot", "Serving TPOT"], ["serving", "ttft", "Serving TTFT"], ["post-training", "step", "Post-training step"]];

// The first score of a kind's newest wave: stored rows, or what a scorer printed of a sealed wave.
function newest(ledger, kind, metric) {
  const sealed = ledger.sealed.filter((one) => one.kind === kind && !one.draft && !one.given).map((one) => ({ ...one, name: one.wave }));
  const first = sealed.filter((one, place) => sealed.findIndex((other) => other.name === one.name) === place);
  const met = [...ledger.waves.filter((one) => one.kind === kind), ...first].sort((a, b) => a.date.localeCompare(b.date));
  const found = met.map((one) => ({ wave: one, score: one.scores.find((score) => score.metric === metric && !score.seen_before) })).filter((one) => one.score);
  return found.at(-1) ?? null;
}

function firstContact(ledger) {
  const lines = HEADLINES.map(([kind, metric, title]) => ({ kind, metric, title, found: newest(ledger, kind, metric) })).filter((one) => one.found);
  const training = lines.find((one) => one.kind === "training")?.found;
  const error = ({ kind, metric, found: { wave, score } }) => h("span", {}, number(score.median_source, "share", `first_contact.${kind}.${metric}`), ` median of ${score.sources}, ${show(score.far_off, "share")} of the rows more than 25 % off, `,
    `${show(score.inside_rows, "share")} of the rows inside the 90 % interval (${wave.name}, met by ${wave.commit})`);
  return h("section", { class: "card" }, h("h2", {}, "First contact: runs that no version had seen"),
    training ? h("p", { class: "big" }, number(training.score.median_source, "share"), h("small", {}, " median error of a training source")) : null,
    h("p", { class: "quiet" }, "Predicted by a version that was frozen before anybody looked at the runs. Expect this error on a run of your own."),
    facts(lines.map((one) => [one.title, error(one)])));
}

function heldOut(scores) {
  const error = (name) => [number(scores[name].median_of_sources, "share", `held_out.${name}`), ` median, ${show(scores[name].inside_p90_of_sources, "share")} inside the 90 % interval`];
  return h("section", { class: "card" }, h("h2", {}, "Held out of the fits: runs that were in sight"),
    h("p", { class: "big" }, number(scores.source.median_of_sources, "share"), h("small", {}, " median error of a source")),
    h("p", { class: "quiet" }, `${show(scores.source.rows, "count")} training runs of ${scores.source.sources} sources, each predicted with its source held out of the fits, formulas found with all rows in sight`),
    facts([["Framework held out", h("span", {}, ...error("framework"))], ["Chip held out", h("span", {}, ...error("chip"))]]));
}

const text = (row) => ["table", "source", "model", "chip", "gpus", "global_batch", "seq_len", "plan"].map((name) => row[name]).join(" ").toLowerCase();

function search(find) {
  const input = h("input", { id: "find", type: "search", value: find, placeholder: "model, chip, source, or words of a plan", oninput: () => window.dispatchEvent(new CustomEvent("foretell:find", { detail: input.value })) });
  return h("section", { class: "card" }, h("label", { for: "find" }, "Find runs"), input);
}

function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
