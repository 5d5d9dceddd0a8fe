"""A solution of exercise 2, in NumPy. There are other ways to write it that are just as right."""

from cutaway.course.given import attention


def split_heads(x, n_heads):
    n_texts, n_words, d_model = x.shape
    x = x.reshape(n_texts, n_words, n_heads, d_model // n_heads)  # cut D where it stands: [B, T, H, E]
    return x.swapaxes(1, 2)  # and only then move the heads: [B, H, T, E]


def merge_heads(x):
    n_texts, n_heads, n_words, width = x.shape
    x = x.swapaxes(1, 2)  # [B, T, H, E]: the heads of a word are neighbours again
    return x.reshape(n_texts, n_words, n_heads * width)


def multi_head_attention(x, memory, weights, n_heads, mask=None):
    q = split_heads(x @ weights["query"], n_heads)
    k = split_heads(memory @ weights["key"], n_heads)
    v = split_heads(memory @ weights["value"], n_heads)
    heads, _ = attention(q, k, v, mask)  # it works on the last two axes, and so in each head alone
    return merge_heads(heads) @ weights["output"]
