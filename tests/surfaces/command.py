"""The command line in this process: what it prints where, and its exit code."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from foretell.cli import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command left behind."""

    code: int
    """Exit code."""
    out: str
    """Standard output."""
    err: str
    """Standard error."""

    @property
    def json(self) -> Any:
        """Standard output as strict JSON: NaN and Infinity are none."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


def foretell(*arguments: str) -> Outcome:
    """Run `foretell` with arguments, as a shell would pass them."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(arguments)
    return Outcome(code=code, out=out.getvalue(), err=err.getvalue())


TOY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
}
"""A small model's config.json."""

TOY_PARAMETERS = 2 * 32000 * 512 + 8 * (512 * 512 * 3 + 3 * 512 * 1536 + 2 * 512) + 512
"""Its weights by hand: two tables; per layer q and o (512 x 512 each), k and v (512 x 256 each), three
feed-forward maps, two norms; the last norm."""

TOY_SYSTEM = """\
id = "toy-cluster"
name = "A toy"
chip = "h100-sxm"
chips_per_node = 4
node_watts = { value = "5 kW", source = "guess", status = "inferred" }

[network.node]
size = 4
bandwidth_bytes_per_s = "300 GB/s"
latency_s = "3 us"

[network.cluster]
size = 64
bandwidth_bytes_per_s = "200 Gbit/s"
latency_s = "6 us"
topology = "fat-tree"
taper = 0.5
efficiency = 0.7

[sources]
guess = "made up for the tests"
"""
"""A small system of one's own."""
