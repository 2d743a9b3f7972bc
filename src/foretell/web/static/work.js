// What is under way: words, a bar and a cancel button. It appears when an answer takes longer than a moment.

import { digits, h } from "./dom.js";

const SHOW_MS = 150;
const WORDS = {
  search: ["Searching plans", "plans"], estimate: ["Estimating", ""], size: ["Sizing the service", "layouts"], serve: ["Estimating the service", "requests"],
  compare: ["Comparing systems", "systems"], scaling: ["Computing scaling curves", "points"], sensitivity: ["Varying every number", "numbers"],
  simulate: ["Simulating the step", ""], "post-train": ["Evaluating post-training plans", ""], improve: ["Searching better flags", ""], diagnose: ["Looking for causes of the gap", ""],
  explain: ["Explaining the step", ""], read: ["Reading the file", ""], network: ["Computing the collective", ""],
};

export class Work {
  constructor(root, cancel, again) {
    this.asks = new Map();
    this.next = 0;
    this.words = h("p", { id: "work-words" });
    this.bar = h("progress", { "aria-labelledby": "work-words" });
    this.cancel = h("button", { type: "button", id: "cancel", onclick: cancel }, "Cancel");
    this.again = h("button", { type: "button", id: "again", hidden: true, onclick: again }, "Ask again");
    this.root = root;
    root.append(this.words, this.bar, this.cancel, this.again);
  }

  // A new question of the page: nothing of the one before is shown.
  start() {
    this.asks.clear();
    this.began = performance.now();
    this.again.hidden = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), SHOW_MS);
    clearInterval(this.ticks);
    this.ticks = setInterval(() => { if (!this.root.hidden) this.draw(); }, 200);
  }

  begin(verb) { this.asks.set(this.next, { verb, state: "sent", done: 0, total: 0 }); return this.next++; }
  tell(id, told) { if (this.asks.has(id)) Object.assign(this.asks.get(id), told); }
  end(id) { this.asks.delete(id); }

  draw() {
    const own = [...this.asks.values()];
    const main = own.find((one) => one.total) ?? own[0];
    const [does, of] = WORDS[main?.verb] ?? [main?.verb?.startsWith("figures") ? "Drawing figures" : "Working", ""];
    const count = main?.total ? `: ${digits(main.done, 4)} of ${digits(main.total, 4)}${of ? ` ${of}` : ""}` : "";
    const queued = own.length && own.every((one) => one.state === "queued") ? ", waiting for a free worker" : "";
    const seconds = (performance.now() - this.began) / 1000;
    this.words.textContent = `${does}${count}${queued} · ${seconds.toFixed(1)} s`;
    if (main?.total) { this.bar.max = main.total; this.bar.value = main.done; } else this.bar.removeAttribute("value");
    this.bar.hidden = false;
    this.cancel.hidden = false;
    this.root.hidden = false;
  }

  stop() {
    clearTimeout(this.timer);
    clearInterval(this.ticks);
    this.root.hidden = true;
  }

  cancelled() {
    clearTimeout(this.timer);
    clearInterval(this.ticks);
    this.words.textContent = "Cancelled. Nothing runs on the server any more.";
    this.bar.hidden = true;
    this.cancel.hidden = true;
    this.again.hidden = false;
    this.root.hidden = false;
    this.again.focus();
  }
}
