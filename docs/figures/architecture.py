"""Draw the architecture (the paper's Figure 1): python docs/figures/architecture.py."""

from pathlib import Path

from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

SPACE, TIME, MIX, PLAIN = "#FFE08A", "#A8DDB5", "#C9C7F2", "#EEEEEE"
FRAMES = (("1", 1.6), ("L", 6.4))
CENTRE = 4.0


def main() -> None:
    figure = Figure(figsize=(7.2, 8.2))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set_xlim(-0.4, 9.4)
    axes.set_ylim(-0.2, 10.6)
    axes.axis("off")

    def box(x, y, text, colour=PLAIN, width=2.9, size=9):
        patch = FancyBboxPatch(
            (x - width / 2, y - 0.27),
            width,
            0.54,
            boxstyle="round,pad=0.03",
            fc=colour,
            ec="#333333",
        )
        axes.add_patch(patch)
        axes.text(x, y, text, ha="center", va="center", fontsize=size)

    def arrow(x0, y0, x1, y1):
        axes.annotate("", (x1, y1), (x0, y0), arrowprops={"arrowstyle": "-|>", "color": "#333333"})

    axes.add_patch(
        FancyBboxPatch(
            (-0.1, 1.55), 8.2, 6.35, boxstyle="round,pad=0.05", fc="#F3F7FC", ec="#7F9DB9"
        )
    )
    axes.text(8.75, 4.7, "× M\nblocks", ha="center", va="center", fontsize=11)

    for name, x in FRAMES:
        box(x, 0.4, f"frame {name}:  h, x, v, A({name})")
        arrow(x, 0.7, x, 1.75)
        box(x, 2.05, r"$a=(A_{ij},\,|x_i-x_j|^2)$")
        arrow(x, 2.35, x, 2.75)
        box(x, 3.05, "EGNN: K × EGCL   (Eq. 2)", SPACE)
        arrow(x, 3.35, x, 3.95)
        box(x, 5.55, r"$\tilde\theta,\ \hat a$" + "      " + r"$\tilde\xi,\ \tilde\omega$")
        arrow(x, 4.6, x, 5.25)
        arrow(x - 0.6, 5.85, x - 0.6, 6.25)
        box(x - 0.6, 6.55, r"$f_\theta, f_A$: LN, Linear, +", MIX, width=2.0, size=8)
        arrow(x - 0.6, 6.85, x - 0.6, 7.25)
        arrow(x + 0.9, 5.85, x + 0.9, 7.25)
        box(x, 7.55, r"$\theta,\ A,\ \xi,\ \omega\ $ of frame " + name)
        arrow(x, 7.85, CENTRE + (x - CENTRE) * 0.12, 8.7)
    for y in (0.4, 2.05, 3.05, 5.55, 6.55, 7.55):
        axes.text(CENTRE, y, "· · ·", ha="center", va="center")
    axes.text(CENTRE, 3.65, "+ encodings (off)", fontsize=8, ha="center", va="center")
    box(
        CENTRE,
        4.28,
        "ETAL: every node attends over the frames (Eqs. 5-10); edges too, if on (11-12)",
        TIME,
        width=7.6,
    )
    box(CENTRE, 9.0, "mean over the frames", width=3.2)
    arrow(CENTRE, 9.3, CENTRE, 9.75)
    box(CENTRE, 10.05, r"Forecast:  $\hat x(L+H),\ \hat v(L+H)$", "#FFFFFF", width=3.6)

    rcParams["svg.hashsalt"] = "spacetime-en"  # the same file every time
    path = Path(__file__).with_suffix(".svg")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
