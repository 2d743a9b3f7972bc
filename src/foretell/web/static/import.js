// Import: a file dropped anywhere on the page, or a text pasted into a box. The server says what it is; the page uses
// it, and neither stores it.

import { ask, Refused } from "./api.js";
import { h } from "./dom.js";

const MOST_BYTES = 64000;

export class Import {
  // `use` is called with what the text is ({kind, name, about, object}), the text, and the file's name.
  constructor(use) {
    this.use = use;
    this.text = h("textarea", { id: "import-text", rows: 9, spellcheck: "false", placeholder: "id = \"my-cluster\"\nchip = \"h100-sxm\"\n[network.node]\n…" });
    this.file = h("input", { id: "import-file", type: "file", accept: ".toml,.json,.yaml,.yml,.sh,.txt,.log,.csv,.jsonl,.slurm,.sbatch,.py" });
    this.said = h("p", { class: "wrong", role: "alert" });
    this.dialog = h("dialog", { id: "import", "aria-labelledby": "import-title" },
      h("h2", { id: "import-title" }, "Import"),
      h("p", { class: "quiet" }, "A system's TOML, a model's config.json, a log or table of measured runs, or a launch command, script or config of another tool. Nothing is stored: not in the link, and not on the server."),
      h("label", { for: "import-file" }, "Choose a file, or drop one anywhere on the page"), this.file,
      h("label", { for: "import-text" }, "or paste the text"), this.text, this.said,
      h("div", { class: "row end" }, h("button", { type: "button", onclick: () => this.dialog.close() }, "Close"),
        h("button", { type: "button", class: "main", id: "import-go", onclick: () => this.read(this.text.value, "") }, "Import")));
    document.body.append(this.dialog);
    this.file.addEventListener("change", () => this.files(this.file.files));
    const veil = h("div", { id: "veil", hidden: true }, h("p", {}, "Drop a system's TOML, a config.json, a log of measured runs or a launch file"));
    document.body.append(veil);
    const held = (event) => event.dataTransfer?.types?.includes("Files");
    window.addEventListener("dragover", (event) => { if (held(event)) { event.preventDefault(); veil.hidden = false; } });
    window.addEventListener("dragleave", (event) => { if (!event.relatedTarget) veil.hidden = true; });
    window.addEventListener("drop", (event) => {
      veil.hidden = true;
      if (!held(event)) return;
      event.preventDefault();
      this.files(event.dataTransfer.files);
    });
  }

  open() {
    this.said.textContent = "";
    this.file.value = "";
    if (!this.dialog.open) this.dialog.showModal();
  }

  async files(files) {
    const [file] = files;
    if (!file) return;
    if (file.size > MOST_BYTES) { this.open(); this.said.textContent = `${file.name} has ${file.size} bytes; at most ${MOST_BYTES} are read here. The command line reads larger files.`; return; }
    await this.read(await file.text(), file.name);
  }

  async read(text, name) {
    try {
      const found = await ask("read", { text });
      this.text.value = "";
      if (this.dialog.open) this.dialog.close();
      this.use(found, text, name);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.open();
      this.said.textContent = `${name ? `${name}: ` : ""}${error.errors.map((one) => one.message + (one.allowed ? `. Allowed: ${one.allowed}` : "")).join("; ")}`;
    }
  }
}
