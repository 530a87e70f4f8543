"""Test the conversion of LaTeX to readable Unicode."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text import latex


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (r"$\pi_0$, π_0 and $x_{max}^2$", "π₀, π₀ and xₘₐₓ²"),
        (r"$O(n^{2}\log\log T)$ or $2t\log_q n$", "O(n² log log T) or 2t log_q n"),
        (r"$2^{256}$, 10^6, ε^{-20}, AT^2PO, 90$^\circ$", "2²⁵⁶, 10⁶, ε⁻²⁰, AT²PO, 90°"),
        (r"$2^{n+1}$ and $e^{1/e}$", "2ⁿ⁺¹ and e^(1/e)"),
        (r"$\mathbb{R}^{n\times n}$ in $\mathcal{O}(1)$", "ℝ^(n×n) in 𝒪(1)"),
        (r"$\beta\frac{1+x}{2n}$, $\frac{1}{2}$, $\sqrt{n}$", "β(1+x)/2n, 1/2, √n"),
        (r"$\widetilde{\mathcal{O}}(T)$ and $\tilde{O}(n)$", "Õ(T) and Õ(n)"),
        (r"$\|x\|_1$, $A_{\mathrm{diff}}$, $d_\text{model}$", "‖x‖₁, A_diff, d_model"),
        (r"$\mathsf{PROP}$ of Paulo Andr\'e", "PROP of Paulo André"),
        (r"We propose \method{}, \eg for cats \cite{a,b}.", "We propose method, e.g. for cats."),
        (r"{\em XMM}, {\bf bold}, the {\it in vivo} ({\small a})", "XMM, bold, the in vivo (a)"),
        (r"$\sqrt[3]{n}$, $\sqrt[n]{2}$, $x^\prime$, 3 M$_\odot$", "∛n, ⁿ√2, x′, 3 M⊙"),
        (r"$\binom{n}{k}$, m\textsuperscript{2}, $\operatorname*{argmax}_x$", "(n choose k), m², argmaxₓ"),
        (r"see it\footnote{At https://a.test/x_1}", "see it (At https://a.test/x_1)"),
        ("256{times}256 at 360^{circ}", "256×256 at 360°"),
        (r"Q&A with $\alpha$, 50% of R\&D", "Q&A with α, 50% of R&D"),
        ("at https://a.test/b_1{https://a.test/b_1}.", "at https://a.test/b_1."),
        ("during training}.", "during training."),
        ("{FRISM} for 11{,}133 {S}ignals", "FRISM for 11,133 Signals"),
        ("2.5times faster on 8timesA100, 64times64, 64times 64", "2.5× faster on 8×A100, 64×64, 64× 64"),
        ("sim25% to 1sim4, 20sim 40, sim2times, sim8k", "∼25% to 1∼4, 20∼40, ∼2×, ∼8k"),
        (
            "(leq 7B), geq5, at 90^circ, 3.2pm0.1, 1rightarrow2, approx7s, O(N cdot T)",
            "(≤ 7B), ≥5, at 90°, 3.2±0.1, 1→2, ≈7s, O(N · T)",
        ),
        ("{bf Bold}, emph{so}, the ''plug-in'' way", "Bold, so, the “plug-in” way"),
        ("**Ours**, or **O**ne **U**se-**C**ase, is *new*", "Ours, or One Use-Case, is new"),
        (
            '**Aim:** “**so**” **Why?** 85 to **90**% **"plug in"** **Conclusions.**',
            'Aim: “so” Why? 85 to 90% "plug in" Conclusions.',
        ),
        (
            "[code](https://a.test/x), [**code**](https://a.test/x), **[code](https://a.test/x)**",
            "code (https://a.test/x), code (https://a.test/x), code (https://a.test/x)",
        ),
        ("at [https://a.test/b_1](https://a.test/b_1).", "at https://a.test/b_1."),
        ("at [https://a.test](https://a.test/).", "at https://a.test/."),
        ("2.1~dB in 2019--2020, ``so'' it -- or not", "2.1 dB in 2019–2020, “so” it – or not"),
    ],
)
def test_latex_becomes_unicode(raw: str, expected: str) -> None:
    """Test sub- and superscripts, alphabets, fractions, accents, and commands without their backslash."""
    assert latex.latex_to_unicode(raw) == expected


@pytest.mark.parametrize(
    "text",
    [
        "keep <think> and <b>x</b> &amp; x < y",
        "from $5 to $10, not 5% of $100",
        "snake_case, a_1b, 10^25.5, 2**3, --flag, ~5, x = {0, 1} and https://a.test/~me/x_1--y",
        "14 times faster from sim2real, sometimes approx 5 similar, at 5 pm, 5pm6 and pm2.5",
        "run 3 times 5 seeds, repeated 5 times 10 minutes",
        "in sim 10 tasks succeed, sim2Real, sim1 and sim2, sim3D, MuJoCo-sim 3, sim 2 real, real2sim2real",
        "Sim10k and sim10k, the leq operator, leq_1, S^circle, {it is}, {em dash} and {bf 16}",
        "A* and V*, 256*256, a*b and c*d, pi**2, (*) and (**), 2**n**2, x**n**k, f(*args, **kwargs) and y**2",
        "*Equal contribution. We use A* search (*p < .05; q* = 3), rm *log and tmp*, CoSTA* and RRT* into A*",
        "![figure](https://a.test/u), [![badge](https://a.test/u)](https://a.test/v), array[i](https://a.test/u)",
        "as in [1](https://a.test/u)",
        "only ${",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    """Markup is text here, and is escaped when shown."""
    assert latex.latex_to_unicode(text) == text


@settings(deadline=None)  # a wall-clock limit; the machine may be busy
@given(
    st.lists(st.sampled_from([*"\\${}^_%~-`'<> ab1", "\\frac", "\\cite{", "\\mathbb", "\\x"]), max_size=30)
)
def test_any_text_can_be_converted(parts: list[str]) -> None:
    """Neither well-formed nor broken text gains markup."""
    text = "".join(parts)
    converted = latex.latex_to_unicode(text)
    assert len(converted) <= len(text) * 4 + 100
    assert converted.count("<") <= text.count("<")
