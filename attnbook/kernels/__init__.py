"""The same mathematics as `attnbook.tiled`, as Triton kernels for NVIDIA GPUs: one folder an operation.

`flash` (attention and its gradients, dense and packed), `decode` (few queries against a cache, contiguous or in pages),
`moe` (a mixture of experts). They take tensors and return tensors: autograd, torch.compile and the choice between
implementations are the door's, `attnbook.api`, where `impl="triton"` asks for them. `available` says where they run,
and `compile` what the compiler makes of them, without a GPU.

Importing this needs no Triton; calling does, from 3.6 on. With TRITON_INTERPRET=1 in the environment before the first
call, Triton's interpreter runs them on the CPU: slowly, and enough to check what they calculate.
"""
