"""Exercise of chapter 9b: how large is the KV cache?"""


def kv_cache_bytes(layers, n_kv_heads, head_dim, tokens, requests, bytes_per_number):
    """The bytes that keys and values of all tokens take, in all layers and for all requests.

    Whole numbers, but bytes_per_number may be 0.5 for numbers of four bits. Returns a number of bytes, not of KiB.
    """
    # hole: lines
    one_token = 2 * layers * n_kv_heads * head_dim  # keys and values
    return one_token * tokens * requests * bytes_per_number
    # end
