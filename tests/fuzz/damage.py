"""Damage valid bytes and texts: replaced, removed, repeated and inserted parts."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def damaged(draw: st.DrawFn, valid: st.SearchStrategy[bytes], tokens: tuple[bytes, ...] = ()) -> bytes:
    """Valid bytes with up to four changes; `tokens` are inserted often. Some are not changed at all."""
    data = draw(valid)
    pieces = st.one_of(st.binary(max_size=6), st.sampled_from(tokens)) if tokens else st.binary(max_size=6)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + draw(st.sampled_from([0, 1, 1, 4, 40])))))
        action = draw(st.sampled_from(["replace", "remove", "repeat", "cut"]))
        if action == "replace":
            data = data[:start] + draw(pieces) + data[end:]
        elif action == "remove":
            data = data[:start] + data[end:]
        elif action == "repeat":
            data = data[:end] + data[start:]
        else:
            data = data[:start]
    return data


def damaged_text(valid: st.SearchStrategy[str], tokens: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    encoded = valid.map(lambda text: text.encode("utf-8", "surrogatepass"))
    return damaged(encoded, tuple(token.encode() for token in tokens)).map(
        lambda data: data.decode("utf-8", "replace")
    )
