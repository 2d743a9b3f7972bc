"""Models of transformers from their configs, and of diffusers: the class that a config names, its inputs."""

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from foretell.errors import BadInput, Problem, bad_input
from foretell.trace.diffusion import diffusion_factory

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
    return Problem(path="trace", value=value, message=message, allowed=allowed)


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
