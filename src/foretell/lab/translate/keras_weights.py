"""Weights of Anthe's TensorFlow code (github.com/LuCeHe/anthe_official) as weights of our modules.

A file holds arrays by Keras's names, in Keras's order: an .npz that `numpy.savez(file, **{w.name: w.numpy()
for w in model.weights})` wrote, or an .h5 of `model.save_weights` where h5py is installed. Names begin with
the layer (encoder_layer_3, embedding_layer, soft_pos_1, conv1d, dense); within a layer arrays come in the
order in which its code makes them: of attention query, key, value and output, then the norm, of the gated
part w_1, w_3 and w_2. A dense kernel is (inputs, outputs), ours is turned; a convolution's is (taps, inputs,
outputs). KgV attention reads its query through the authors' w_key and gates by w_query (order kqv).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.models import model as catalogue_model
from foretell.errors import bad_input
from foretell.interop.user_files import made_folder, whole_file, write_whole
from foretell.lab.translate.settings import TranslationSizes, resize_model
from foretell.lab.translate.text import (
    BEST,
    MODEL,
    SETTINGS,
    TOKENIZER,
    need_tokenizers,
    need_torch,
    save_tensors,
    write_json,
)
from foretell.specs.ffn import Dense
from foretell.specs.model import Layer, Model
from foretell.workload.blocks.gated_attention import GatedAttention

Array = NDArray[Any]
KINDS = ("encoder_layer", "decoder_layer", "embedding_layer", "soft_pos", "conv1d", "dense")
"""Layers of the authors' model that hold weights."""
MOST_BYTES = 1 << 33
"""No file of these models is larger."""


class KerasReader:
    """Arrays of one layer after the other, as Keras keeps them."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        """From names and arrays, in Keras's order."""
        groups: dict[str, list[Array]] = {}
        for name, array in arrays.items():
            groups.setdefault(name.split("/")[0], []).append(array)
        found: dict[str, list[tuple[int, list[Array]]]] = {kind: [] for kind in KINDS}
        self.unknown = []
        for name, own in groups.items():
            match = re.fullmatch(r"([a-z0-9_]+?)(?:_(\d+))?", name)
            kind = match[1] if match else ""
            if kind not in found:
                self.unknown.append(name)
                continue
            found[kind].append((int(match[2] or 0) if match else 0, own))
        self.found = {
            kind: [iter(own) for _, own in sorted(some, key=lambda one: one[0])]
            for kind, some in found.items()
        }

    def take(self, kind: str, place: int) -> "LayerReader":
        """The arrays of one layer."""
        some = self.found[kind]
        if place >= len(some):
            what = f"has {len(some)} layers named {kind}, and the model needs more"
            raise bad_input("file", kind, what, f"weights of the same model, with {KINDS}")
        return LayerReader(f"{kind} {place}", some[place])


class LayerReader:
    """Arrays of one layer, in order."""

    def __init__(self, name: str, arrays: Iterator[Array]) -> None:
        """From an iterator over them."""
        self.name, self.arrays = name, arrays

    def next(self) -> Array:
        """The next array."""
        found = next(self.arrays, None)
        if found is None:
            raise bad_input("file", self.name, "has too few arrays for this model")
        return np.asarray(found, dtype=np.float32)

    def dense(self, name: str) -> dict[str, Array]:
        """A map with its bias, as ours are called."""
        return {f"{name}.weight": self.next().T, f"{name}.bias": self.next()}

    def mapping(self, name: str, *, chain: int) -> dict[str, Array]:
        """A dense map, or so many cores of a chain, and a bias."""
        if not chain:
            return self.dense(name)
        cores = {f"{name}.weights.core{j}": self.next() for j in range(chain)}
        return {**cores, f"{name}.weights.bias": self.next()}

    def norm(self, name: str) -> dict[str, Array]:
        """Scale and shift."""
        return {f"{name}.weight": self.next(), f"{name}.bias": self.next()}


def module_weights(model: Model, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Our module's weights by name, from the authors' arrays."""
    reader = KerasReader(arrays)
    assert model.encoder is not None
    found: dict[str, Array] = {}
    sides = (("encoder_inputs", 0), ("inputs", 1))
    if model.embedding.block is not None:
        found |= _soft_positions(reader, model, sides)
    else:
        own = {"inputs.tokens.weight": reader.take("embedding_layer", 0).next()}
        if model.encoder_embedding is not None:
            other = reader.take("embedding_layer", 1).next()
            own = {
                "encoder_inputs.tokens.weight": own["inputs.tokens.weight"],
                "inputs.tokens.weight": other,
            }
        found |= own
    for kind, stack, prefix in (
        ("encoder_layer", model.encoder, "encoder"),
        ("decoder_layer", model.stack, "layers"),
    ):
        for i, layer in enumerate(stack.layers):
            found |= _layer(reader.take(kind, i), layer, f"{prefix}.blocks.{i}")
    if model.head.tied:
        found["scores.scores.weight"] = found["inputs.tokens.weight"]
    else:
        found |= reader.take("dense", 0).dense("scores.scores")
    return found


def _soft_positions(
    reader: KerasReader, model: Model, sides: tuple[tuple[str, int], ...]
) -> dict[str, Array]:
    """Tables, choices and convolutions of both sides; the encoder's come first."""
    block: Any = model.embedding.block
    levels = int(block.levels)
    found: dict[str, Array] = {}
    for name, side in sides:
        prefix = f"{name}.block"
        found[f"{prefix}.parts.table.weight"] = reader.take("embedding_layer", side).next()
        for level in range(levels):
            place = side * levels + level
            found[f"{prefix}.weights.choice{level}"] = reader.take("soft_pos", place).next()
            if level:
                taps = reader.take("conv1d", side * (levels - 1) + level - 1)
                kernel, bias = taps.next(), taps.next()
                found[f"{prefix}.parts.convolution{level}.weight"] = kernel.reshape(
                    -1, kernel.shape[-1]
                ).T
                found[f"{prefix}.parts.convolution{level}.bias"] = bias
    return found


def _layer(reader: LayerReader, layer: Layer, prefix: str) -> dict[str, Array]:
    """Attention and its norm, as often as there is attention, then the feed-forward part and its norm."""
    found: dict[str, Array] = {}
    for i, mixer in enumerate(layer.mixers):
        own = f"{prefix}.mixers.{i}"
        if isinstance(mixer, GatedAttention):
            chain = 0 if mixer.factor is None else int(getattr(mixer.factor, "length", 2))
            for name in ("gate", "q", "v"):  # the authors' query, key and value
                found |= reader.mapping(f"{own}.parts.{name}", chain=chain)
            found |= reader.dense(f"{own}.parts.o")
        else:
            for name in ("q", "k", "v", "o"):
                found |= reader.dense(f"{own}.{name}")
        found |= reader.norm(f"{prefix}.norms.{i}")
    found |= _feed(reader, layer, f"{prefix}.feeds.0")
    return found | reader.norm(f"{prefix}.norms.{len(layer.mixers)}")


def _feed(reader: LayerReader, layer: Layer, prefix: str) -> dict[str, Array]:
    feed = layer.ffn
    assert isinstance(feed, Dense)
    if feed.factor is not None:
        chain = int(getattr(feed.factor, "length", 2))
        ups = [reader.mapping(f"{prefix}.ups.{i}", chain=chain) for i in range(1 + feed.gated)]
        merged = {name: array for up in ups for name, array in up.items()}
        return merged | reader.mapping(f"{prefix}.down", chain=chain)
    ups = [reader.dense("up") for _ in range(1 + feed.gated)]
    up = {
        f"{prefix}.{name}": np.concatenate([one[name] for one in ups], axis=0)
        for name in ("up.weight", "up.bias")
    }
    return up | reader.dense(f"{prefix}.down")


def read_arrays(path: Path) -> dict[str, Array]:
    """Names and arrays of a file, in its order; nothing in it is run."""
    if not path.is_file():
        raise bad_input("file", str(path), "there is no such file")
    if path.stat().st_size > MOST_BYTES:
        raise bad_input("file", str(path), "is larger than any of these models")
    if path.suffix == ".h5":
        return dict(_of_h5(path))
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError) as error:
        what = f"is no .npz of arrays: {error}"
        how = "numpy.savez(FILE, **{w.name: w.numpy() for w in model.weights})"
        raise bad_input("file", str(path), what, how) from None


def _of_h5(path: Path) -> Iterator[tuple[str, Array]]:
    """Arrays of `model.save_weights("file.h5")`, layer by layer."""
    from importlib.util import find_spec

    if find_spec("h5py") is None:
        raise bad_input("file", str(path), "reading .h5 needs h5py", "pip install h5py, or an .npz")
    import h5py

    with h5py.File(path, "r") as stored:
        for layer in stored.attrs["layer_names"]:
            group = stored[layer]
            for name in group.attrs["weight_names"]:
                word = name.decode() if isinstance(name, bytes) else str(name)
                yield word, np.asarray(group[name])


def import_keras(path: Path, *, model: str, tokenizer: Path, out: Path) -> dict[str, Any]:
    """Write the folder of a run from the authors' weights and a tokenizer; what it holds."""
    need_torch()
    need_tokenizers()
    import torch
    from tokenizers import Tokenizer

    from foretell import zoo
    from foretell.interop.own_model import write_toml

    arrays = read_arrays(path)
    if not tokenizer.is_file():
        raise bad_input("tokenizer", str(tokenizer), "there is no such file")
    words = Tokenizer.from_file(str(tokenizer))
    record = resize_model(catalogue_model(model), TranslationSizes(vocab=words.get_vocab_size()))
    module = zoo.build(record, fused=True)
    weights = module_weights(record, arrays)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in weights.items()}
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        first = " ".join(str(error).split())[:300]
        raise bad_input("file", str(path), f"does not fit {model}: {first}") from None
    made_folder(out)
    with whole_file(out / TOKENIZER) as beside:
        words.save(str(beside))
    write_whole(out / MODEL, write_toml(record))
    save_tensors(out / BEST, {"module": module.state_dict()})
    write_json(
        out / SETTINGS,
        {"max_source": 100, "max_target": 101, "model": model, "imported": path.name},
    )
    total = sum(p.numel() for p in module.parameters())
    return {"model": model, "weights": total, "arrays": len(arrays), "folder": str(out)}
