"""PURE. Find the category that an unknown one most likely means, among those of arXiv and of the archive."""

import re
from collections.abc import Callable, Sequence

from rapidfuzz.distance import OSA

from app.relevance.filters import in_categories

# https://arxiv.org/category_taxonomy
_SUBCATEGORIES = {
    "cs": "AI AR CC CE CG CL CR CV CY DB DC DL DM DS ET FL GL GR GT HC IR IT LG LO MA MM MS NA NE NI OH OS "
    "PF PL RO SC SD SE SI SY",
    "econ": "EM GN TH",
    "eess": "AS IV SP SY",
    "math": "AC AG AP AT CA CO CT CV DG DS FA GM GN GR GT HO IT KT LO MG MP NA NT OA OC PR QA RA RT SG SP ST",
    "astro-ph": "CO EP GA HE IM SR",
    "cond-mat": "dis-nn mes-hall mtrl-sci other quant-gas soft stat-mech str-el supr-con",
    "nlin": "AO CD CG PS SI",
    "physics": "acc-ph ao-ph app-ph atm-clus atom-ph bio-ph chem-ph class-ph comp-ph data-an ed-ph flu-dyn "
    "gen-ph geo-ph hist-ph ins-det med-ph optics plasm-ph pop-ph soc-ph space-ph",
    "q-bio": "BM CB GN MN NC OT PE QM SC TO",
    "q-fin": "CP EC GN MF PM PR RM ST TR",
    "stat": "AP CO ME ML OT TH",
}
_WITHOUT_GROUP = (
    "gr-qc",
    "hep-ex",
    "hep-lat",
    "hep-ph",
    "hep-th",
    "math-ph",
    "nucl-ex",
    "nucl-th",
    "quant-ph",
)
CATEGORIES = (
    *(f"{group}.{name}" for group, names in _SUBCATEGORIES.items() for name in names.split()),
    *_WITHOUT_GROUP,
)
_LIKE_A_CATEGORY = re.compile(
    rf"(?:{'|'.join(_SUBCATEGORIES)})\.\S+|{'|'.join(_WITHOUT_GROUP)}", re.IGNORECASE
)

# Ways in which a typed category resembles a category, most telling first. Both are in lower case.
_RESEMBLANCES: tuple[Callable[[str, str], bool], ...] = (
    lambda typed, name: typed.rpartition(".")[2] == name.rpartition(".")[2],  # "ML", "cs.ML": stat.ML
    lambda typed, name: OSA.distance(typed, name) == 1 and sorted(typed) == sorted(name),  # "cs.OR": cs.RO
    lambda typed, name: OSA.distance(typed, name) == 1,  # "cs.R0": cs.RO
    lambda typed, name: typed.startswith(name) or name.startswith(typed),  # "cs.ROBO": cs.RO
)


def is_like_a_category(text: str) -> bool:
    """Return True if a text is a category of arXiv, or begins like one: "cs.XX"."""
    return bool(_LIKE_A_CATEGORY.fullmatch(text))


def closest(typed: str, archive: Sequence[str] = ()) -> str:
    """Return the category that was most likely meant, or "" if there is none or several are as likely.

    `typed` must be in lower case. `archive` are the categories of papers. If several categories of arXiv are
    similar, the only one of them in the archive is returned. A group, such as "cs", is returned as typed.
    """
    of_group = [name for name in (*archive, *CATEGORIES) if in_categories(name, [typed])]
    if of_group:
        return next((name for name in of_group if name.casefold() == typed), typed)
    for resembles in _RESEMBLANCES:
        for names in (archive, CATEGORIES):
            similar = [name for name in names if resembles(typed, name.casefold())]
            if len(similar) == 1:
                return similar[0]
    return ""
