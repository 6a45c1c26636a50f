"""The Triton kernels: on a GPU where there is one, else in Triton's interpreter, in processes of their own."""
