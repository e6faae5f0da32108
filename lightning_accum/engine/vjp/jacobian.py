"""The vector-Jacobian product of any module that is linear in the parameter, by autograd."""

from __future__ import annotations

import math
from contextlib import suppress

import torch
from torch import Tensor

from lightning_accum.engine.vjp.base import WeightVJP, is_indices
from lightning_accum.observe.copies import copied


class Jacobian(WeightVJP):
    """Differentiates the module by its parameter."""

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns the gradient, in the parameter's shape, of the output weighted by ``post``."""
        return self._gradient(getattr(self.module, self.name).detach(), post, pre)

    def run(self, param: Tensor, pre: Tensor, hooks: bool = True) -> Tensor:
        """Returns the module's output with other values of the parameter, unseen by monitors.

        Hooks always run, because they may compute tensors that the module uses, as those of
        ``torch.nn.utils.prune`` do.

        Args:
            param: the values.
            pre: ``[K, ...]`` the input.
            hooks: has no effect here.
        """
        return super().run(param, pre)

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Checks the shapes, and that the module is linear in the parameter.

        The derivative by the parameter is compared at two values of it, in a copy of the module.

        Raises:
            ValueError: if the shapes differ, or the module is not linear in the parameter.
        """
        super().check(post, pre)
        dtype, linear = torch.float64, None
        with suppress(Exception):  # a module may name a dtype itself, as `x.float()` does
            linear = self._is_same(post, pre, dtype)
        if linear is None:
            dtype = torch.promote_types(getattr(self.module, self.name).dtype, torch.float32)
            linear = self._is_same(post, pre, dtype)
        if not linear:
            found = "that the derivative depends on the parameter's value: train the linear module"
            found += " inside, and make the rest part of the neuron"
            if not self._is_same(post, pre, dtype, elsewhere=False):
                found = "that two calls with the same input have other derivatives: put what is"
                found += " random, such as dropout, in a module of its own before the connection"
            raise ValueError(
                f"Parameter {self.place} should enter its module, a {type(self.module).__name__},"
                " linearly, because local rules sum products of its input and its output. Found"
                f" {found}."
            )

    def _is_same(
        self, post: Tensor, pre: Tensor, dtype: torch.dtype, elsewhere: bool = True
    ) -> bool:
        """Returns whether two derivatives are the same, computed in ``dtype``.

        Args:
            post: a tensor of the output's shape.
            pre: a tensor of the input's shape, or indices.
            dtype: the dtype.
            elsewhere: whether the second is that at another value of the parameter.
        """
        param = getattr(self.module, self.name).detach().to(dtype)
        generator = torch.Generator(param.device).manual_seed(0)  # leaves the global one alone

        def random(like: Tensor) -> Tensor:
            return torch.rand(like.shape, generator=generator, dtype=dtype, device=param.device)

        probe = pre if is_indices(pre) else random(pre)
        direction = random(post)
        with self.explained():
            module = copied(self.module)
        twin = Jacobian(
            module.double() if dtype == torch.float64 else module, self.name, self.place
        )
        values = param, random(param) if elsewhere else param
        one, other = (twin._gradient(value, direction, probe) for value in values)
        if dtype == torch.float64:
            return torch.allclose(one, other, rtol=1e-6, atol=1e-9)
        part = math.sqrt(torch.finfo(dtype).eps)  # sums of many products round, relative to all
        return torch.allclose(one, other, rtol=part, atol=part * float(one.abs().max()))

    def _gradient(self, param: Tensor, post: Tensor, pre: Tensor) -> Tensor:
        """Returns the derivative of the output, weighted by ``post``, by the parameter."""
        with torch.enable_grad(), self.explained():
            leaf = param.to(post.dtype).requires_grad_()
            out = self.run(leaf, pre)
        if not out.requires_grad:
            raise ValueError(
                f"Parameter {self.place} should take part in the output of its module, a"
                f" {type(self.module).__name__}, with a derivative. Found that it has none:"
                " name another parameter in `params`, and run the module with gradients."
            )
        with self.explained():
            (gradient,) = torch.autograd.grad(out, leaf, post, allow_unused=True)
        return torch.zeros_like(leaf) if gradient is None else gradient
