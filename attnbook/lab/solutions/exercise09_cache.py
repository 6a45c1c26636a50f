"""Exercise of chapter 9b: how large is the KV cache?"""


def kv_cache_bytes(layers, n_kv_heads, head_dim, tokens, requests, bytes_per_number):
    """The bytes of all keys and values, in all layers and for all requests.

    layers: how many there are.
    n_kv_heads: heads with keys and values, in a layer.
    head_dim: components of a head.
    tokens: of one request.
    requests: how many there are.
    bytes_per_number: 0.5 for four bits.
    Returns a number of bytes, not of KiB or GiB.
    """
    # hole: lines
    one_token = 2 * layers * n_kv_heads * head_dim  # keys and values
    return one_token * tokens * requests * bytes_per_number
    # end
