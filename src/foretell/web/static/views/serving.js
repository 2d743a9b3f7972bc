// Serving: one deployment under one load, and how many chips a rate takes within its latency targets.

import { differences } from "./differences.js";
import { assumed, before, facts, h, headingOf, howSure, named, noCard, number, range, scenarioCard, shown, sure, tableOf, withUsual, word } from "./shared.js";

const LOAD = ["model", "system", "s_gpus", "isl", "osl", "concurrency", "layout", "engine", "set", "measured"];
const LEVELS = ["model", "system", "isl", "osl", "rate", "ttft", "tpot", "percentile", "engine", "set", "measured"];

export default {
  title: "Serving",
  groups: () => [["", ["model", "system", "isl", "osl", "engine"]], ["One deployment", ["s_gpus", "concurrency", "layout"]],
    ["Sized for", ["rate", "percentile", "ttft", "tpot"]], ["More", ["measured", "set"]]],

  async show(desk) {
    const questions = desk.names.map((_, i) => withUsual(desk.flags(LOAD, i), { gpus: 8 }));
    const sizes = desk.names.map((_, i) => ({ ...withUsual(desk.flags(LEVELS, i), { rate: 10 }), simulate: false }));
    const [told, sized] = await Promise.all([
      desk.each((i) => desk.ask("serve", questions[i])),
      Promise.all(sizes.map((size) => desk.ask("size", size).catch((error) => ({ refused: error.errors ?? [] })))),
    ]);
    // Where no number of GPUs is given and one node is too small, the deployment that `size` proposes.
    await Promise.all(questions.map(async (question, i) => {
      const proposed = sized[i].options?.[0];
      if (told[i].ttft_ms || !proposed || "gpus" in desk.flags(["s_gpus"], i) || question.plan) return;
      questions[i] = { ...question, gpus: proposed.gpus };
      told[i] = await desk.ask("serve", questions[i]).catch(() => told[i]);
    }));
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.ttft_ms ? card(answer, i, sized[i]) : noCard(i, answer, headingOf(answer, questions[i]), "Does not fit"))));
    desk.put("difference", differences(told, METRICS, [["Where a decode step differs", "ms", (answer) => answer.step_ms]]));
    const good = questions.map((question, i) => (told[i].ttft_ms ? question : null));
    await Promise.all([
      desk.figureOf("latencies", "Latencies", good, desk.names),
      desk.figureOf("decode", "One decode step", good, desk.names),
      desk.figureOf("pareto", "Pareto front: speed for one user against throughput per GPU", ...fronts(sizes, sized, desk.names), { wide: true }),
    ]);
    desk.put("levels", tableOf(sized[desk.at], "", `Ways to serve ${number(sized[desk.at].rate, "count").textContent} requests/s, ${desk.names[desk.at]}`, sized[desk.at].presentation?.lines?.[0]));
    desk.put("assumed", assumed(told));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "serve", flags: questions[i], answer })).filter(({ answer }) => answer.ttft_ms)
      .concat(sized[desk.at].options ? [{ name: `${desk.names[desk.at]} sized`, verb: "size", flags: sizes[desk.at], answer: sized[desk.at] }] : []));
    return "";
  },
};

// One front for every question that differs from the others.
function fronts(sizes, sized, names) {
  const own = new Map();
  sizes.forEach((size, i) => { if (sized[i].pareto) own.set(JSON.stringify(size), [...(own.get(JSON.stringify(size)) ?? []), names[i]]); });
  return [[...own.keys()].map((text) => JSON.parse(text)), [...own.values()].map((of) => of.join(" and "))];
}

const METRICS = [["Tokens/s per GPU", "count", (a) => a.output_tokens_per_s_per_gpu], ["Tokens/s per user", "count", (a) => a.output_tokens_per_s_per_user],
  ["TTFT p50", "ms", (a) => a.ttft_ms?.p50], ["TTFT p90", "ms", (a) => a.ttft_ms?.p90], ["TPOT p50", "ms", (a) => a.tpot_ms?.p50], ["TPOT p90", "ms", (a) => a.tpot_ms?.p90],
  ["Requests/s", "count", (a) => a.requests_per_s], ["$ per million output tokens", "usd", (a) => a.usd_per_million_output_tokens], ["Joules per output token", "count", (a) => a.joules_per_output_token],
  ["KV cache", "bytes", (a) => a.kv_bytes]];

function card(answer, i, sized) {
  const levels = (name) => ["p50", "p90", "p99"].flatMap((p, k) => [k ? " · " : "", number(answer[name][p], "", `${name}.${p}`)]).concat(" ms");
  return scenarioCard(i, headingOf(answer, {}),
    h("p", { class: "big" }, named(answer, "output_tokens_per_s_per_gpu"), h("small", {}, " tokens/s per GPU")),
    h("p", { class: "quiet" }, number(answer.batch, "count"), " in a batch"),
    howSure(answer),
    h("p", { class: "plan", "data-name": "plan" }, answer.plan),
    facts([
      ...before(answer, answer.prior?.tpot_ms?.mean, "ms"),
      ["TTFT p50 · p90 · p99", h("span", {}, ...levels("ttft_ms"))],
      [h("span", {}, word("TPOT", "tpot with or without the first token"), " p50 · p90 · p99"), h("span", {}, ...levels("tpot_ms"))],
      [word("90 % interval", "interval"), `${range(answer.interval?.tpot_ms?.p90, "ms")} per token`],
      ...shown(answer, ["ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu"]),
      ["KV cache", number(answer.kv_bytes, "bytes")],
      sized?.gpus ? ["GPUs for the rate", h("strong", {}, number(sized.gpus, "count", "sized_gpus"), sure(sized.intervals?.gpus?.p90, "count"), sized.best.meets ? "" : " (misses the targets)")] : null,
    ]),
    sized?.refused ? h("p", { class: "wrong" }, sized.refused.map((e) => e.message).join("; ")) : sized?.problems ? h("p", { class: "wrong" }, sized.problems.map((e) => e.message).join("; ")) : "");
}
