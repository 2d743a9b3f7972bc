"""Fine-tuning and reinforcement learning: steps that are made of training passes and of generation.

step.py       the spine: a step phase by phase, and what it adds up to
workload.py   what a step does: trajectories, their lengths, which algorithm has which phase
rollout.py    generation by the request simulator
passes.py     forward-only passes and updates over packed or padded lengths
sync.py       weights from the trainer to the rollout engine, by mechanism
memory.py     what lives on a chip in every phase
pipeline.py   two pools at once: queues, staleness, who waits
placement.py  colocated, split and asynchronous placements, ranked
"""
