"""JAX: gradients of rows by vmap, by jax-privacy, and clipped slopes as dpglm has them; jitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
from jax_privacy.clipping import clipped_grad

from benchmarks.step_cost.protocol import CLIP, Adapter, Work, Workload, make_rows, serve

jax.config.update("jax_enable_x64", True)

MICROBATCH = 500


def _loss(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Loss of one row, or losses of all."""
    z = x @ w
    if w.ndim == 1:
        return jnp.logaddexp(0.0, z) - y * z
    picked = jnp.take_along_axis(z, y[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(z, axis=-1) - picked


def vmap_gradient(w: jax.Array, X: jax.Array, y: jax.Array, norms: jax.Array) -> jax.Array:
    gradients = jax.vmap(jax.grad(_loss), (None, 0, 0))(w, X, y)
    lengths = jnp.sqrt(jnp.sum(gradients**2, axis=tuple(range(1, gradients.ndim))))
    return jnp.tensordot(jnp.minimum(1.0, CLIP / lengths), gradients, 1)


def closed_form(w: jax.Array, X: jax.Array, y: jax.Array, norms: jax.Array) -> jax.Array:
    z = X @ w
    if w.ndim == 1:
        slopes, limits = jax.nn.sigmoid(z) - y, CLIP / norms
        return jnp.clip(slopes, -limits, limits) @ X
    slopes = jax.nn.softmax(z) - jax.nn.one_hot(y, w.shape[1], dtype=z.dtype)
    lengths = jnp.sqrt(jnp.sum(slopes**2, axis=1)) * norms
    return X.T @ (slopes * jnp.minimum(1.0, CLIP / lengths)[:, None])


def jax_privacy(w: jax.Array, X: jax.Array, y: jax.Array, norms: jax.Array) -> Any:
    gradient = clipped_grad(
        _loss,
        l2_clip_norm=CLIP,
        batch_argnums=(1, 2),
        keep_batch_dim=False,
        # Gradients of all rows of a softmax would take gigabytes, and most of a minute.
        microbatch_size=MICROBATCH if w.ndim > 1 else None,
    )
    return gradient(w, X, y)


@contextmanager
def _work(function: Callable[..., Any], workload: Workload) -> Iterator[Work]:
    rows = make_rows(workload)
    y = rows.y.astype(workload.dtype) if workload.classes == 1 else rows.y
    arrays = [jnp.asarray(one) for one in (rows.w, rows.X, y, rows.norms)]
    compiled = jax.jit(function)
    yield lambda: jax.device_get(compiled(*arrays))


JAX = Adapter(
    f"JAX {jax.__version__}, jax-privacy {version('jax-privacy')}",
    {
        "JAX, closed form": partial(_work, closed_form),
        "JAX, vmap": partial(_work, vmap_gradient),
        "jax-privacy": partial(_work, jax_privacy),
    },
)

if __name__ == "__main__":
    serve(JAX)
