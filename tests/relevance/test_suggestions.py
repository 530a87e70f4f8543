"""Test how interests are read: misspelt words, other languages, and what to ask for instead."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.relevance import query_language, suggestions
from app.relevance.model import RelevanceModel
from app.relevance.suggestions import InterestHint, InterestReader, TopicIndex

READER = InterestReader(RelevanceModel.bundled())


def read(text: str) -> str:
    """Return what a text is read as if today's papers contain none of its words."""
    return READER.read(text, re.findall(r"[^\W_]+", text))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("vison language modles", "vision language models"),
        ("Vison Language Modles", "Vision Language Models"),
        ("reinforcment learnig", "reinforcement learning"),
        ("grahp neural netwroks", "graph neural networks"),
        ("langauge models", "language models"),  # one paper has this slip
        ("vision-langauge models", "vision-language models"),
        ("interpretabilty", "interpretability"),
        ('difusion models -video author:"He"', 'diffusion models -video author:"He"'),
    ],
)
def test_misspelt_words_are_corrected(typed: str, meant: str) -> None:
    """Capitals at the beginning, hyphens, filters and exclusions are kept."""
    assert read(typed) == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("on-line learning", "online learning"),
        ("E-mail", "Email"),
        ("off-line RL -on-line", "offline RL -on-line"),
        ("in-context learning", ""),  # papers do not write "incontext"
        ("multi-agent systems", ""),  # more papers write it as two words
        ("pre-training", ""),  # already the same word
        ("text-to-image", ""),
        ('"on-line"', ""),
        ("ON-LINE", ""),  # possibly a name
    ],
)
def test_words_that_papers_write_as_one_are_joined(typed: str, meant: str) -> None:
    assert READER.hint(typed).did_you_mean == meant


@pytest.mark.parametrize(
    "text",
    [
        "LLM reasoning",
        "low-resource languages",
        "SWE-bench",
        "Qwen4",
        "DeepSekk",  # capitals within a word: a name
        "Karpathy",
        "beekeeping",
        "quantum beekeeping",
        "cats",
        "behaviour modelling",  # British
        "Poincaré maps",
        "naïve Bayes",
        '"langauge modles"',  # a phrase in quotes is taken as typed
        "author:Langauge",
        "agents -langauge",
        "zzzzzzzzzzzzzz",
        "a",
        "neutron scattering",  # words of the dictionary that are near frequent words
        "Drought",
        "addiction",
        "catalysis",
        "wheat",
        "neighbourly",
    ],
)
def test_correct_words_and_names_are_kept(text: str) -> None:
    """So are quoted phrases, exclusions and filters."""
    assert read(text) == ""


def test_word_in_a_paper_is_kept() -> None:
    """The archive's own words are correct, even if the model does not know them yet."""
    assert read("transfomers") == "Transformers"
    assert READER.read("transfomers") == ""


@pytest.mark.parametrize(
    ("typed", "english"),
    [
        ("maschinelles Lernen", "machine learning"),
        ("großer Sprachmodelle", "large language models"),
        ("grands modèles de langage", "large language models"),
        ("modèles de diffusion", "diffusion models"),
        ("génération de vidéos", "video generation"),
        ("apprentissage par renforcement pour la robotique", "reinforcement learning robotics"),
        ("redes neuronales -cancer", "neural networks -cancer"),
        ("aprendizaje automatico", "machine learning"),  # without its accent
        ("aprendizado por reforço", "reinforcement learning"),
        ("Sicherheit von KI", "safety AI"),
        ("IA en medicina", "AI medicine"),
        ("LLM-Agenten", "LLM agents"),
        ("扩散模型", "diffusion models"),
        ("LLM 推理", "LLM reasoning"),
        ("機械学習のための拡散モデル", "machine learning diffusion models"),
    ],
)
def test_terms_in_other_languages_are_translated(typed: str, english: str) -> None:
    assert read(typed) == english


def test_no_term_of_the_table_is_english() -> None:
    """English interests, such as the terms in the first column, are never translated."""
    lines = (suggestions.translations._TABLE).read_text(encoding="utf-8").splitlines()[1:]
    assert len(lines) > 150
    assert [line.split("\t")[0] for line in lines if read(line.split("\t")[0])] == []


@given(st.text(max_size=60))
def test_whatever_is_read_is_a_valid_interest(text: str) -> None:
    """Reading never fails, and reads nothing into its own result."""
    if meant := read(text):
        assert query_language.parse(meant).terms
        assert len(meant) <= query_language.MAX_INTEREST_CHARS


def test_only_rare_words_are_looked_up() -> None:
    """Interests in common words cost nothing."""
    assert not READER.may_need_correction("language models for 3D robots, and GPT")
    assert READER.may_need_correction("langauge models")
    assert READER.may_need_correction("modèles de diffusion")  # its stems are those of English words


def test_missing_words_are_named_with_what_they_are_joined_to() -> None:
    """Several parts of a name are one name."""
    text = "X-ray, t-SNE, Phi-3.5 and Wan2.1, C++, off-the-shelf LLMs."
    words = ["ray", "SNE", "Phi", "3", "Wan2", "C++", "shelf", "LLMs"]
    names = ["X-ray", "t-SNE", "Phi-3.5", "Wan2.1", "C++", "off-the-shelf", "LLMs"]
    assert suggestions.whole_names(text, words) == names
    text = "Node.js, cs.RO. l'abeille l’hiver bees' women's 'honey'"
    words = ["js", "cs", "RO", "l", "abeille", "hiver", "bees", "women", "honey"]
    names = ["Node.js", "cs.RO", "l'abeille", "l’hiver", "bees", "women", "honey"]
    assert suggestions.whole_names(text, words) == names


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("graph of proteins", ["graph of proteins", "graph", "proteins"]),
        ("dark matter", ["dark matter"]),
        ("spiking neural networks", ["spiking neural networks", "spiking neural", "neural networks"]),
        ("self-driving cars", ["self-driving cars", "self-driving"]),
        ("explainable AI for doctors", ["explainable AI for doctors", "explainable AI", "doctors"]),
        (
            "protein; graphs, 3D",
            ["protein graphs 3D", "protein graphs", "graphs 3D", "protein", "graphs", "3D"],
        ),
        ("how do graphs of proteins fold?", ["graphs of proteins fold", "proteins fold", "graphs"]),
        ("what does attention do?", ["attention"]),
        ("how does attention work?", ["attention"]),
        ("what makes RL work?", ["RL"]),
        ("why do agents learn from pixels?", ["agents learn from pixels", "agents", "pixels"]),
        ("attention work", ["attention work"]),  # not a question
        ("recent papers on graphs and video", ["graphs and video", "graphs", "video"]),
        ("graphs AND video", ["graphs video"]),
        ("protein", ["protein"]),
        (":-graphs of ;title:video", [":-graphs of ;title:video", ":-graphs", ";title:video"]),
        ("how do you do?", []),
        ('protein "graph"', []),
        ("NOT gates", []),
        ("three four five six seven eight nine", []),
    ],
)
def test_parts_of_a_subject_are_whole_groups_or_several_words_of_one(text: str, parts: list[str]) -> None:
    """They keep what is between these words, but not the words of a question around them."""
    assert suggestions.subject_parts(text) == parts


TITLES = [
    "Protein Structure Prediction: A Survey",
    "Fast Protein Structure Prediction",
    "Diffusion Models for Video",
    "Video Diffusion Models",
    "On Diffusion Models",
]


def test_topics_are_runs_of_words_in_several_titles() -> None:
    """A run that mostly goes on in the same way is no topic of its own."""
    topics = TopicIndex(TITLES)
    assert topics.commonest() == ["Diffusion Models", "Protein Structure Prediction"]
    assert topics.nearest("proteomics") == ["Protein Structure Prediction"]
    assert topics.nearest("gardening models") == ["Diffusion Models"]
    assert topics.nearest("gardening") == []
    assert topics.varied(TITLES[:1]) == ["Protein Structure Prediction", "Diffusion Models"]


def test_topics_keep_apostrophes_within_words() -> None:
    """The offered topic was “s Disease”. Quotation marks still separate topics."""
    topics = TopicIndex(["Alzheimer’s Disease 'Early Detection'", "On Alzheimer's Disease"])
    assert topics.nearest("alzheimer") == ["Alzheimer’s Disease"]
    topics = TopicIndex(["Graph 'Video Search'", "'Graph' Video 'Search'"])
    assert topics.commonest() == []


def test_single_compounds_are_no_topics() -> None:
    topics = TopicIndex(["Large-Scale Graphs", "A Large-Scale Study", "Large-Scale Search"] * 3)
    assert not any(topic == "Large-Scale" for topic in topics.varied([]) + topics.commonest())
    assert "Large-Scale Graphs" in topics.commonest()


def test_hints_in_words() -> None:
    assert not InterestHint("agents")
    hint = InterestHint(
        "vison", "vision", missing_words=("vison",), shorter="a", topics=("b", "c"), topics_are_near=True
    )
    assert suggestions.sentences(hint) == [
        "Did you mean “vision”? We search for both.",
        "No recent paper mentions “vison”.",
        "“a” matches papers.",
        "Related topics: “b”, “c”.",
    ]
    several = suggestions.hint_from_text("video OR audio", "")
    assert suggestions.sentences(several) == ["This looks like 2 interests: “video”, “audio”."]
    negated = suggestions.hint_from_text("robots NOT driving", "")
    assert suggestions.sentences(negated) == [
        "To exclude words, put a hyphen right before them: “robots -driving”."
    ]
    foreign = InterestHint("модели", missing_words=("модели",), is_foreign=True, topics=("b",))
    assert suggestions.sentences(foreign) == [
        "Titles and abstracts are in English. Please write the interest in English.",
        "The most frequent topics: “b”.",
    ]


@pytest.mark.parametrize(
    ("text", "is_foreign"),
    [("модели", True), ("세계 모델", True), ("مدل", True), ("Übersetzung", False), ("tiếng Việt", False),
     ("α-divergence", False), ("π₀", False), ("2026", False)],
)  # fmt: skip
def test_other_scripts_are_recognized(text: str, is_foreign: bool) -> None:
    """A single Greek letter is not a foreign word."""
    assert suggestions.translations.is_foreign_script(text) == is_foreign


@pytest.mark.parametrize(
    ("typed", "versions"),
    [
        ("author:Yann LeCun", ['author:"Yann LeCun"']),
        ("Author: LeCun, Yann", ['Author:"LeCun, Yann"', "Author:LeCun Author:Yann"]),
        (
            "video org:Google DeepMind robots -survey",
            ['video org:"Google DeepMind robots" -survey', 'video org:"Google DeepMind" robots -survey'],
        ),
        ("cat:cs.CL,cs.AI", ["cat:cs.CL cat:cs.AI"]),
        ("cat:cs.CL, cs.AI agents", ["cat:cs.CL cat:cs.AI agents"]),
        ("cat:cs.CL agents", []),
        ("author:Yann LeCun AND agents", ['author:"Yann LeCun" AND agents']),
        ("author:LeCun OR robots", []),
        ("author:lecun,-bengio", []),
        ('author:"Yann LeCun" robots', []),
        ("-author:Yann LeCun", []),
        ("author:LeCun", []),
        ("robots", []),
    ],
)
def test_values_of_filters_that_lack_quotes(typed: str, versions: list[str]) -> None:
    """A value may include the words after it, or be a list."""
    assert suggestions.filter_suggestions(typed) == versions
    assert all(map(query_language.parse, versions))


@pytest.mark.parametrize(
    ("typed", "corrected"),
    [
        ("cat:cs.R0", "cat:cs.RO"),
        ("cat:cs.ROBO", "cat:cs.RO"),
        ("cat:cs.LGG", "cat:cs.LG"),
        ("cat:cs.OR", "cat:cs.RO"),
        ("cat:csRO", "cat:cs.RO"),
        ("cat:LG", "cat:cs.LG"),
        ("cat:cs.ML", "cat:stat.ML"),  # of another group
        ("cat:cv", "cat:cs.CV"),  # and math.CV, which the archive does not have
        ("cat:ICLR.orals", "cat:ICLR.oral"),  # only this archive has it
        ('cat:"ICLR postr"', 'cat:"ICLR poster"'),
        ('agents CAT:"cs.R0", -cat:cs.LGG "cat:cs.R0"', 'agents cat:cs.RO, -cat:cs.LG "cat:cs.R0"'),
        ("cs.LGG", "cat:cs.LG"),
        ("cs.ro", "cat:cs.RO"),
        ("hep-th", "cat:hep-th"),
        ("cat:cs.ro", ""),
        ("cat:cs", ""),
        ("cat:cs.SX", ""),  # several are as similar
        ("cs.SX", ""),
        ("cat:nonsense", ""),
        ("node.js", ""),
        ("robots", ""),
        ("cat:ml " + "a" * 293, ""),  # the correction would be too long
    ],
)
def test_unknown_categories_are_replaced_by_the_closest(typed: str, corrected: str) -> None:
    assert suggestions.with_closest_categories(typed, ["cs.CV", "ICLR.oral", "ICLR poster"]) == corrected
    if "ICLR" not in typed and "cv" not in typed:
        assert READER.hint(typed).with_filters == corrected
