"""Images and audio in front of a model: the tokens that they become, and their encoder's operations.

    patches = (width / patch) (height / patch)         of an image; audio has frames in their place
    tokens  = patches / merge^2                        that join the sequence

In training a tower that learns is layers in front of the model's, computed again where they are, on the first
pipeline stage. A frozen one runs forward alone, keeps nothing, and has neither gradients nor states.
"""

import math
import re

from foretell.errors import BadInput, Problem, bad_input
from foretell.specs._base import Num, with_fields
from foretell.specs.model import EncoderLoad, Model, Stack, Tower
from foretell.workload.graph import LayerGraph, Tokens
from foretell.workload.layer import layer_graph, layers_graph
from foretell.workload.ops import AttentionCore, Gemm, Op
from foretell.workload.roles import OpRole, Region

_IMAGES = re.compile(r"(?:([0-9]{1,4})x)?([0-9]{1,5})x([0-9]{1,5})")
EXAMPLES = {"vision": "qwen2.5-vl-7b", "audio": "whisper-large-v3, qwen2-audio-7b"}
"""Models of the catalogue that read images, and audio."""
FLAGS = {"vision": "images", "audio": "audio"}
"""What asks for each tower."""


def read_images(text: str) -> tuple[int, int, int]:
    """Images, width and height of a text such as 1024x1024 or 2x1280x720."""
    match = _IMAGES.fullmatch(text.strip().lower())
    if match is None or min(int(match[2]), int(match[3])) < 1 or match[1] == "0":
        raise bad_input(
            "images", text, "is no size of images", "WIDTHxHEIGHT in pixels, or COUNTxWIDTHxHEIGHT"
        )
    return int(match[1] or 1), int(match[2]), int(match[3])


def image_load(tower: Tower, wide: int, high: int, many: int = 1) -> EncoderLoad:
    """Images as their family's processor cuts them."""
    sequences, per_token = 1.0, float(tower.merge**2)
    if tower.image_side:
        across, down = (math.ceil(side / tower.image_side) for side in (wide, high))
        tiles = min(across * down, tower.most_tiles)
        sequences = float(tiles + (tiles > 1))
        tokens = (tower.image_side // tower.patch) ** 2 / per_token
    elif tower.budget:
        tokens = float(tower.budget)
    else:
        step = tower.patch * tower.merge
        cells = [max(round(side / step), 1) for side in (wide, high)]
        tokens = float(min(cells[0] * cells[1], tower.most_tokens or math.inf))
    return EncoderLoad(
        tower=tower,
        sequences=many * sequences,
        length=tokens * per_token,
        tokens=many * sequences * tokens,
    )


def audio_load(tower: Tower, seconds: float) -> EncoderLoad:
    """Some seconds of audio, in whole stretches where its tower pads them."""
    frames = tower.frames_per_s * seconds
    stretches, length = 1, max(frames, 1.0)
    if tower.stretch_s:
        stretches = math.ceil(seconds / tower.stretch_s)
        length = tower.frames_per_s * tower.stretch_s
    tokens = stretches * tower.budget if tower.budget else math.ceil(frames / tower.merge)
    return EncoderLoad(tower=tower, sequences=float(stretches), length=length, tokens=float(tokens))


def read_loads(
    model: Model, images: str | None, audio_s: float | None
) -> list[tuple[str, EncoderLoad]]:
    """Images and audio as they were asked for, and what goes through their towers."""
    found = []
    if images is not None:
        count, wide, high = read_images(images)
        found.append((images, image_load(tower_of(model, "vision", images), wide, high, count)))
    if audio_s:
        load = audio_load(tower_of(model, "audio", audio_s), audio_s)
        found.append((f"{audio_s:g} s of audio", load))
    return found


def tower_of(model: Model, name: str, value: object) -> Tower:
    for tower in model.towers:
        if tower.name == name and tower.stack and (tower.patch or tower.frames_per_s):
            return tower
    raise BadInput(
        [Problem(path=FLAGS[name], value=value, message=f"{model.id} has no {name} encoder that is known",
                 allowed=f"a model with one, such as {EXAMPLES[name]}")]
    )  # fmt: skip


def projector(load: EncoderLoad, rows: Num, parts: float = 1.0) -> Gemm:
    """What is not of a tower's layers: most of it maps from merged patches to the text's width."""
    tower, stack = load.tower, load.tower.stack
    assert stack is not None
    rest = max(tower.parameters - stack_weights(stack), 0.0)
    inputs = float(stack.hidden * tower.merge ** (1 if tower.frames_per_s else 2))
    outputs = max(rest / inputs / parts, 1.0)
    return Gemm(
        name="encoder.projector", m=rows, n=outputs, k=inputs, role=OpRole.UP,
        region=Region.EMBEDDING,
    )  # fmt: skip


def stack_weights(stack: Stack) -> float:
    """Weights of a tower's layers, all as large as the first; windows have none."""
    one = Tokens(batch=1.0, q_len=1.0, kv_len=1.0, phase="prefill")
    ops = layer_graph(stack.layers[0], stack.hidden, one).ops
    return len(stack.layers) * float(sum(op.parameters for op in ops))


def tower_layers(load: EncoderLoad, batch: Num) -> tuple[tuple[LayerGraph, ...], tuple[int, ...]]:
    """Distinct layers of a tower over the images of `batch` sequences, and which of them each layer is."""
    assert load.tower.stack is not None
    tokens = Tokens(batch=batch * load.sequences, q_len=load.length, kv_len=load.length)
    kinds, order = layers_graph(load.tower.stack, tokens, load.tower.name)
    return tuple(with_fields(k, ops=tuple(map(_apart, k.ops))) for k in kinds), order


def frozen_tower(load: EncoderLoad, batch: Num) -> LayerGraph:
    """A tower that passes no gradient on: its layers and its projector, forward alone. What the ends of its
    tensor-parallel regions send forward is as much as one end sends both ways."""
    kinds, order = tower_layers(load, batch)
    ops = [op for kind in order for op in kinds[kind].ops]
    edges = tuple(edge for kind in order for edge in kinds[kind].edges if edge.leave)
    whole = [*ops, projector(load, batch * load.tokens)]
    still = tuple(with_fields(op, region=Region.FROZEN) for op in whole)
    return LayerGraph(name="embedding", ops=still, edges=edges)


def _apart(op: Op) -> Op:
    return with_fields(op, apart=True) if isinstance(op, AttentionCore) else op
