"""What one device sends and receives in a step, in seconds at the specification of its links.

Groups are laid out as Megatron does: tensor innermost, then context, then data, stages outermost.
Collectives are hierarchical: inside a node first, then across nodes with what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelyard.speed.physical.columns import Column, Columns
from modelyard.speed.physical.families import STYLE_CODE, Style
from modelyard.speed.physical.work import Work, recomputed_share

#: what cutting attention into pieces costs, as a share of it, if the term's factor is 1
RING_LOSS = 0.5
#: what is left of the hand-over where one chunk is sent while the next is computed (Megatron's
#: overlap_p2p_comm, which interleaved schedules have)
INTERLEAVED_EXPOSED = 0.25
#: collectives for a block whose parameters are gathered, where its modules are not joined in one
_GATHERS_APART = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Seconds at specification; of one micro-batch where the name begins with `micro`."""

    micro_tensor_inside: Column
    micro_tensor_across: Column
    #: messages of one micro-batch, at the latency of one
    micro_tensor_latency: Column
    micro_context: Column
    micro_expert_inside: Column
    micro_expert_across: Column
    #: hand-over between stages, whole step
    pipeline: Column
    pipeline_latency: Column
    #: gradients and sharded parameters, whole step
    data_inside: Column
    data_across: Column
    data_latency: Column
    #: what hides it, in micro-batches' worth of computing: 1 when it happens once, m when each time
    data_windows: Column
    #: parameter servers' network, whole step
    servers: Column


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of devices that talk: how many, in how many nodes."""

    size: Column
    inside: Column
    nodes: Column


def _group(c: Columns, size: Column, stride: Column) -> _Group:
    """`size` devices, `stride` apart in the numbering of devices."""
    room = np.maximum(np.floor(c.devices_per_node / stride), 1.0)
    inside = np.minimum(size, room)
    return _Group(size, inside, np.ceil(size / inside))


def _gather(c: Columns, group: _Group, full_bytes: Column) -> tuple[Column, Column, Column]:
    """One all-gather or reduce-scatter of `full_bytes`: inside, across, and latency."""
    inside = full_bytes * (group.inside - 1.0) / group.inside / c.inside_bandwidth
    per_device = full_bytes / group.inside
    across = per_device * (group.nodes - 1.0) / group.nodes / c.across_bandwidth
    # Trees beyond a few: latency grows with the logarithm, as NCCL's do.
    steps = np.log2(np.maximum(group.inside, 1.0)), np.log2(np.maximum(group.nodes, 1.0))
    latency = steps[0] * c.inside_latency + steps[1] * c.across_latency
    return inside, across, latency


def traffic_of(columns: Columns, work: Work) -> Traffic:
    """Count the traffic of every configuration."""
    c = columns
    full = recomputed_share(c)
    tensor_inside, tensor_across, tensor_latency = _tensor(c, work, full)
    expert_inside, expert_across = _expert(c, work, full)
    pipeline, pipeline_latency = _pipeline(c, work)
    data_inside, data_across, data_latency, windows = _data(c, work)
    return Traffic(
        micro_tensor_inside=tensor_inside,
        micro_tensor_across=tensor_across,
        micro_tensor_latency=tensor_latency,
        micro_context=_context(c, work),
        micro_expert_inside=expert_inside,
        micro_expert_across=expert_across,
        pipeline=pipeline,
        pipeline_latency=pipeline_latency,
        data_inside=data_inside,
        data_across=data_across,
        data_latency=data_latency,
        data_windows=windows,
        servers=_servers(c, work),
    )


def _tensor(c: Columns, work: Work, full: Column) -> tuple[Column, Column, Column]:
    """Two all-reduces of a block's output forward and two backward; with recomputing two more."""
    layout = c.layout
    group = _group(c, layout.tensor, np.ones_like(layout.tensor))
    size = work.tokens * c.hidden * c.wide_bytes
    inside, across, latency = _gather(c, group, size)
    # An all-reduce is a reduce-scatter and an all-gather; sequence parallelism does both as well.
    count = 2.0 * (4.0 + 2.0 * full) * work.stage_layers * c.repeats
    return inside * count, across * count, latency * count


def _context(c: Columns, work: Work) -> Column:
    """Keys and values pass around the ring, forward once and backward twice (with gradients)."""
    layout = c.layout
    group = _group(c, layout.context, layout.tensor)
    held = work.tokens * 2.0 * c.kv_heads * c.head_size * c.wide_bytes / layout.tensor
    moved = held * (layout.context - 1.0) * 3.0 * work.stage_layers * c.repeats
    bandwidth = np.where(group.nodes > 1.0, c.across_bandwidth, c.inside_bandwidth)
    # A ring cuts one kernel into `context` smaller ones, whose results are merged.
    pieces = RING_LOSS * work.attention * (1.0 - 1.0 / layout.context)
    return moved / bandwidth + pieces


def _expert(c: Columns, work: Work, full: Column) -> tuple[Column, Column]:
    """Tokens go to their experts and come back: twice forward, twice backward."""
    layout = c.layout
    group = _group(c, layout.expert, layout.tensor * layout.context)
    blocks = np.where(c.experts > 0, work.stage_layers * _share(c), 0.0)
    copies = np.minimum(c.experts_per_token, layout.expert)
    size = work.tokens * copies * c.hidden * c.wide_bytes / layout.tensor
    moved = size * (4.0 + 2.0 * full) * blocks
    stays = 1.0 / layout.expert
    near = group.inside / layout.expert
    inside = moved * np.maximum(near - stays, 0.0) / c.inside_bandwidth
    # A token that several experts of one node want is sent there once (DeepEP, Hybrid-EP).
    wanted = np.maximum(copies * (1.0 - near), 1.0 / layout.expert)
    nodes_met = (group.nodes - 1.0) * (1.0 - (1.0 - 1.0 / group.nodes) ** copies)
    once = np.minimum(nodes_met / wanted, 1.0)
    across = moved * (1.0 - near) * once / c.across_bandwidth
    return inside, across


def _share(c: Columns) -> Column:
    all_layers = c.layers + c.decoder_layers
    return (all_layers - c.dense_layers) / all_layers


def _pipeline(c: Columns, work: Work) -> tuple[Column, Column]:
    """Activations forward and gradients backward, once for each chunk of a stage."""
    layout = c.layout
    stages = layout.pipeline > 1.0
    stride = layout.tensor * layout.context * layout.data
    crosses = stride * layout.pipeline > c.devices_per_node
    size = work.tokens * c.hidden * c.wide_bytes / layout.tensor
    bandwidth = np.where(crosses, c.across_bandwidth, c.inside_bandwidth)
    latency = np.where(crosses, c.across_latency, c.inside_latency)
    messages = np.where(stages, 2.0 * layout.virtual * layout.accumulation, 0.0)
    exposed = np.where(layout.virtual > 1.0, INTERLEAVED_EXPOSED, 1.0)
    return messages * exposed * size / bandwidth, messages * exposed * latency


def _data(c: Columns, work: Work) -> tuple[Column, Column, Column, Column]:
    """Gradients once a step; with shards of parameters, gathers for every micro-batch."""
    layout = c.layout
    replicas = layout.data * layout.context
    group = _group(c, replicas, layout.tensor)
    gradients = work.stage_trainable * c.wide_bytes
    weights = work.stage_parameters * np.where(c.adapted > 0, c.frozen_bytes, c.wide_bytes)
    per_micro = np.where(layout.pipeline > 1.0, 1.0, layout.accumulation)
    level = layout.sharding
    shard = _group(c, np.minimum(layout.shard_group, replicas), layout.tensor)
    once_inside, once_across, once_latency = _gather(c, group, gradients)
    part_inside, part_across, _ = _gather(c, shard, weights)
    out_inside, out_across, _ = _gather(c, shard, gradients)
    # All-reduce: both halves. Shards of gradients are reduced for every micro-batch.
    reduce_count = 1.0 + np.where(level == 2.0, per_micro, 1.0)
    gathers = 2.0 * per_micro
    hybrid = layout.shard_group < replicas
    outer = np.where(hybrid, 2.0 / np.maximum(layout.shard_group, 1.0), 0.0)
    is_three = level == 3.0
    inside = np.where(
        is_three, gathers * part_inside + per_micro * out_inside, reduce_count * once_inside
    )
    across = np.where(
        is_three,
        gathers * part_across + per_micro * out_across + outer * once_across * group.inside,
        reduce_count * once_across,
    )
    # One collective for each block where parameters are gathered, and those know only rings, whose
    # latency grows with their length; a few buckets otherwise.
    hops = shard.nodes * (shard.inside - 1.0) * c.inside_latency
    apart = np.where(c.style == STYLE_CODE[Style.EAGER], _GATHERS_APART, 1.0)
    ring = (hops + (shard.nodes - 1.0) * c.across_latency) * apart
    latency = np.where(
        is_three,
        (gathers + per_micro) * ring * work.stage_layers,
        reduce_count * once_latency * np.minimum(work.stage_layers, 12.0),
    )
    windows = np.where(is_three | (level == 2.0), layout.accumulation, 1.0)
    alone = (replicas <= 1.0) | (layout.servers > 0)
    zero = np.zeros_like(inside)
    return (
        np.where(alone, zero, inside),
        np.where(alone, zero, across),
        np.where(alone, zero, latency),
        windows,
    )


def _servers(c: Columns, work: Work) -> Column:
    """Workers push gradients to servers and pull parameters: the busier side is the limit."""
    layout = c.layout
    size = (work.stage_trainable + work.stage_parameters) * c.wide_bytes
    workers = layout.data * layout.context
    node_bandwidth = c.across_bandwidth * c.devices_per_node
    worker_side = size / c.across_bandwidth
    server_side = size * workers / np.maximum(layout.servers, 1.0) / node_bandwidth
    return np.where(layout.servers > 0, np.maximum(worker_side, server_side), 0.0)
