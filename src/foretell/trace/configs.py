"""Models of transformers and diffusers from their configs: the class that a config names, and its inputs.

A training step of diffusers is one pass over noisy latents at one time, a loss against the noise, and its
gradients; a sample is many passes without gradients. Latents are what an image's or a video's autoencoder
leaves.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.records import dataclass
from foretell.trace.kinds import NAMES

TOKENS = 2048
"""Tokens of a sequence where nobody says."""
SIDE, SECONDS, RATE = 224, 10, 16_000
"""Pixels of an image's side, and seconds and samples a second of sound, where a config has none."""


def config_factory(
    file: Path, batch: int, tokens: int | None, size: str | None = None
) -> Callable[[], tuple[Any, ...]]:
    """A function that builds the model of a config, its inputs beside it; `size` is of images and videos."""
    table = _read(file)
    if "_class_name" in table:
        return diffusion_factory(table, batch, size, tokens)
    if size is not None:
        message = "is of models of diffusers; this one has images of its config's size"
        raise bad_input("size", size, message)
    try:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError as error:
        message = (
            f"a model by its config needs transformers: {error}. Run: pip install transformers"
        )
        raise BadInput([_problem(str(file), message)]) from None
    family = str(table.get("model_type", ""))
    if family not in CONFIG_MAPPING:
        message = f"transformers {transformers.__version__} has no model_type {family!r}"
        if table.get("auto_map"):
            message += "; the repository brings its own code, which is not run"
        allowed = "a factory, FILE.py:FUNCTION, that builds the module, or a newer transformers"
        raise BadInput([_problem(str(file), message, allowed)])
    table.pop("quantization_config", None)
    try:
        config = CONFIG_MAPPING[family].from_dict(table)
    except Exception as error:
        raise BadInput(
            [_problem(str(file), f"transformers does not read it: {error}"[:400])]
        ) from error
    if hasattr(config, "use_cache"):
        config.use_cache = False

    def build() -> tuple[Any, Any]:
        names = [str(one) for one in getattr(config, "architectures", None) or ()]
        known = [getattr(transformers, one, None) for one in names]
        made = next((one for one in known if one is not None), None)
        if made is not None:
            module = made._from_config(config)
        else:
            others = sorted(n for n in dir(transformers) if n.startswith("AutoModelFor"))
            autos = [
                getattr(transformers, n) for n in ("AutoModelForCausalLM", "AutoModel", *others)
            ]
            fit = (one for one in autos if type(config) in one._model_mapping)
            module = next(fit, transformers.AutoModel).from_config(config)
        module.train()
        return module, example_inputs(module, batch, tokens)

    return build


def _problem(value: object, message: str, allowed: str | None = None) -> Problem:
    return wrong("trace", value, message, allowed)


def _read(file: Path) -> dict[str, Any]:
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput([_problem(str(file), f"no JSON: {error}")]) from None
    if not isinstance(table, dict) or not {"model_type", "_class_name"} & table.keys():
        message = "no config of transformers or diffusers: it has no model_type and no _class_name"
        if isinstance(table, dict) and table.get("format") == "foretell-trace":
            message = "is traced already: foretell estimate takes it as a model"
        raise BadInput([_problem(str(file), message)])
    return table


def example_inputs(module: Any, batch: int, tokens: int | None) -> dict[str, Any]:
    """Inputs of a model of transformers, by the name of its main one, and labels where it takes some."""
    config = module.config
    text = config.get_text_config()
    most = getattr(text, "max_position_embeddings", None) or TOKENS
    length = tokens or min(TOKENS, most if isinstance(most, int) and most > 0 else TOKENS)
    takes = inspect.signature(module.forward).parameters
    main = str(module.main_input_name)
    if main not in takes and "input_ids" in takes:
        main = "input_ids"
    words = getattr(text, "vocab_size", None) or 2
    ids = torch.randint(0, min(words, 1000), (batch, length))
    kind = dtype_of(module)
    given: dict[str, Any] = {}
    if main == "input_ids":
        given["input_ids"] = ids
    elif main == "pixel_values":
        given["pixel_values"] = torch.empty(_image(config, batch), dtype=kind, device="meta")
    elif main == "pixel_values_videos":
        frames = getattr(config, "frames_per_clip", None) or getattr(config, "num_frames", 16)
        shape = _image(config, batch)
        given[main] = torch.empty((batch, frames, *shape[-3:]), dtype=kind, device="meta")
    elif main == "input_features":
        frames = 2 * getattr(config, "max_source_positions", 1500)
        encoder = getattr(config, "encoder_config", None) or config
        shape = (batch, getattr(encoder, "num_mel_bins", 80), frames)
        if hasattr(encoder, "subsampling_factor"):  # as Conformers take them: features last
            shape = (batch, frames, shape[1])
        given["input_features"] = torch.empty(shape, dtype=kind, device="meta")
    elif main == "input_values":
        given["input_values"] = torch.empty((batch, RATE * SECONDS), dtype=kind, device="meta")
    else:
        message = f"{type(module).__name__} takes {main}, whose sizes are not known"
        raise BadInput([_problem(main, message, f'--inputs "{main}:float32[...]"')])
    if "pixel_values" in takes and main == "input_ids" and "return_loss" in takes:
        given["pixel_values"] = torch.empty(_image(config, batch), dtype=kind, device="meta")
    return {**given, **_labels(module, given, ids, takes)}


def dtype_of(module: Any) -> torch.dtype:
    """The format of a module's numbers."""
    found = (one.dtype for one in module.parameters() if one.is_floating_point())
    return next(found, torch.float32)


def _image(config: Any, batch: int) -> tuple[int, ...]:
    vision = getattr(config, "vision_config", None) or config
    side = getattr(vision, "image_size", None) or getattr(vision, "crop_size", None) or SIDE
    height, width = side if isinstance(side, (list, tuple)) else (side, side)
    frames = getattr(vision, "num_frames", None)
    channels = getattr(vision, "num_channels", None) or 3
    return batch, *((frames,) if frames else ()), channels, int(height), int(width)


def _labels(
    module: Any, given: Mapping[str, Any], ids: torch.Tensor, takes: Mapping[str, Any]
) -> dict[str, Any]:
    """What the class of a model computes its loss from: by transformers' own lists of classes."""
    from transformers.models.auto import modeling_auto

    def one_of(*tasks: str) -> bool:
        tables = (getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}) for task in tasks)
        name = type(module).__name__
        return any(name == n or name in n for table in tables for n in table.values() if n)

    batch = ids.shape[0]
    if "return_loss" in takes and "labels" not in takes:  # texts and images beside each other
        return {"return_loss": True}
    if "labels" not in takes:
        starts = {n: ids[:, 0] for n in ("start_positions", "end_positions") if n in takes}
        if starts:
            return starts
        return {"decoder_input_ids": ids} if "decoder_input_ids" in takes else {}
    if one_of("SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION",
              "NEXT_SENTENCE_PREDICTION", "VIDEO_CLASSIFICATION"):  # fmt: skip
        return {"labels": torch.zeros(batch, dtype=torch.int64)}
    if one_of("TOKEN_CLASSIFICATION"):
        return {"labels": torch.zeros(ids.shape, dtype=torch.int64)}
    if one_of("SEMANTIC_SEGMENTATION"):
        return {"labels": torch.zeros((batch, *given["pixel_values"].shape[2:]), dtype=torch.int64)}
    if one_of("OBJECT_DETECTION"):  # matches boxes on the host, by their numbers
        return {}
    if "input_ids" in given:
        return {"labels": ids}
    most = getattr(module.config, "max_target_positions", None) or ids.shape[1]
    return {"labels": ids[:, : min(most, 64 if "input_values" in given else most)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latents:
    """What a class's main input is made of."""

    layout: str = "image"
    """image: (batch, channels, height, width); video: with frames before the height; frames: with frames
    before the channels; tokens: (batch, places, channels)."""
    pixels: int = 8
    """Pixels of an image's side for one place of the latents."""
    frames: int = 1
    """Frames for one place in time, the first frame apart; 1: still images."""
    text: int = 256
    """Tokens of the text that pipelines pad to."""


CLASSES = {name: Latents(**row) for name, row in NAMES["latents"].items()}
"""Classes of diffusers whose inputs are known."""
TEXT_WIDTH = (
    "joint_attention_dim", "caption_channels", "text_embed_dim", "text_dim", "cap_feat_dim",
    "cross_attention_dim",
)  # fmt: skip
"""Keys of the width of the text's states, in the order in which they are looked for."""
STILL, MOVING = (1, 1024, 1024), (81, 832, 480)
"""Frames, width and height where nobody says: of images, and of videos."""
_SIZE = re.compile(r"(?:(\d{1,4})x)?(\d{2,5})x(\d{2,5})")


def read_size(text: str | None, latents: Latents, sample: object) -> tuple[int, int, int]:
    """Frames, width and height of `1024x1024` or `81x832x480`; else the config's own, or the usual ones."""
    if text is None:
        if latents.frames > 1:
            return MOVING
        side = sample if isinstance(sample, int) else 0
        return (1, side * latents.pixels, side * latents.pixels) if side else STILL
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or (match[1] and latents.frames == 1):
        allowed = "WIDTHxHEIGHT in pixels" + (", or FRAMESxWIDTHxHEIGHT" * (latents.frames > 1))
        raise bad_input("size", text, "is no size of its images", allowed)
    return int(match[1] or (MOVING[0] if latents.frames > 1 else 1)), int(match[2]), int(match[3])


def diffusion_factory(
    table: Mapping[str, Any], batch: int, size: str | None, tokens: int | None
) -> Callable[[], tuple[Any, ...]]:
    """A function that builds the class of a config of diffusers, with inputs and the loss of its training."""
    name = str(table["_class_name"])
    try:
        import diffusers
    except ImportError as error:
        message = f"a config of diffusers needs it: {error}. Run: pip install diffusers"
        raise bad_input("trace", name, message) from None
    if name.startswith("Autoencoder"):
        return lambda: _decoder(getattr(diffusers, name).from_config(dict(table)), batch, size)
    if name not in CLASSES or not hasattr(diffusers, name):
        message = f"{name}: its inputs are not known"
        allowed = ", ".join(CLASSES) + "; others by a factory, FILE.py:FUNCTION"
        raise bad_input("trace", name, message, allowed)
    latents = CLASSES[name]

    def build() -> tuple[Any, ...]:
        module = getattr(diffusers, name).from_config(dict(table))
        module.train()
        sizes = read_size(size, latents, table.get("sample_size"))
        return module, inputs_of(module, latents, batch, sizes, tokens or latents.text), noise_loss

    return build


def noise_loss(module: Any, **inputs: Any) -> torch.Tensor:
    """The squared error against the noise, in 32 bits, as diffusers' training scripts have it."""
    found = module(**inputs, return_dict=False)[0]
    return functional.mse_loss(found.float(), torch.randn_like(found).float())


def inputs_of(
    module: Any, latents: Latents, batch: int, size: tuple[int, int, int], tokens: int
) -> dict[str, Any]:
    """Latents, times and conditions, by the names that the class's forward pass has."""
    config = module.config
    takes = inspect.signature(module.forward).parameters
    frames, width, height = size
    places = (frames - 1) // latents.frames + 1, height // latents.pixels, width // latents.pixels
    main = "hidden_states" if "hidden_states" in takes else "sample"
    given: dict[str, Any] = {main: _empty(*_shape(latents, batch, config.in_channels, places))}
    wide = next((w for key in TEXT_WIDTH if isinstance(w := config.get(key), int)), None)
    optional = {
        "timestep": torch.zeros(batch) if latents.layout != "video" else torch.zeros(batch).long(),
        "class_labels": torch.zeros(batch, dtype=torch.int64),
        "pooled_projections": _empty(batch, config.get("pooled_projection_dim") or 1),
        "encoder_hidden_states": _empty(batch, tokens, wide) if wide else None,
        "encoder_attention_mask": torch.ones(batch, tokens, dtype=torch.int64),
        "encoder_hidden_states_mask": torch.ones(batch, tokens, dtype=torch.bool),
        "guidance": torch.ones(batch) if config.get("guidance_embeds") else None,
        "img_ids": torch.zeros(places[1] * places[2], 3),
        "txt_ids": torch.zeros(tokens, 3),
        "img_shapes": [[places]] * batch,
        "added_cond_kwargs": _added(config, batch),
        "image_rotary_emb": _rotation(config, latents, places),
        "num_frames": places[0], "height": places[1], "width": places[2],
    }  # fmt: skip
    if "num_frames" not in takes:
        del optional["height"], optional["width"]
    wanted = {name: value for name, value in optional.items() if value is not None}
    return given | {name: value for name, value in wanted.items() if name in takes}


def _empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def _shape(
    latents: Latents, batch: int, channels: int, places: tuple[int, int, int]
) -> tuple[int, ...]:
    frames, height, width = places
    return {
        "image": (batch, channels, height, width),
        "video": (batch, channels, frames, height, width),
        "frames": (batch, frames, channels, height, width),
        "tokens": (batch, frames * height * width, channels),
    }[latents.layout]


def _added(config: Any, batch: int) -> dict[str, Any] | None:
    """Sizes of the image beside its time, where a class has embeddings of them (SDXL, PixArt)."""
    if config.get("addition_embed_type") == "text_time":
        texts = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        return {"text_embeds": _empty(batch, texts), "time_ids": torch.zeros(batch, 6)}
    if config.get("use_additional_conditions") is not False:
        return {"resolution": torch.zeros(batch, 2), "aspect_ratio": torch.zeros(batch, 1)}
    return {"resolution": None, "aspect_ratio": None}


def _rotation(config: Any, latents: Latents, places: tuple[int, int, int]) -> Any:
    """Angles of the places, where a pipeline makes them (CogVideoX)."""
    if not config.get("use_rotary_positional_embeddings") or latents.layout != "frames":
        return None
    patch = config.patch_size
    rows = (
        places[0] // (config.get("patch_size_t") or 1) * (places[1] // patch) * (places[2] // patch)
    )
    return tuple(_empty(rows, config.attention_head_dim) for _ in range(2))


class _Decoder(torch.nn.Module):
    """The half of an autoencoder that makes images of latents."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.decoder, self.after = whole.decoder, getattr(whole, "post_quant_conv", None)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        """An image of each."""
        found: torch.Tensor = self.decoder(latents if self.after is None else self.after(latents))
        return found


def _decoder(whole: Any, batch: int, size: str | None) -> tuple[Any, ...]:
    """The decoder of an autoencoder of images, and latents."""
    config = whole.config
    channels = config.get("latent_channels")
    if channels is None or not config.get("block_out_channels"):
        message = f"{type(whole).__name__}: its decoder's inputs are not known"
        raise BadInput([Problem(path="trace", value=type(whole).__name__, message=message,
                                allowed="AutoencoderKL, or a factory, FILE.py:FUNCTION")])  # fmt: skip
    side = 2 ** (len(config.block_out_channels) - 1)
    _, width, height = read_size(size, Latents(pixels=side), None)
    return _Decoder(whole), (_empty(batch, channels, height // side, width // side),)
