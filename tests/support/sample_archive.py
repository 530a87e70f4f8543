"""A small archive of made-up papers on real subjects, large enough to train a model."""

import random
from functools import cache

from app.relevance.model import RelevanceModel
from app.types import PaperView

EACH = 16  # papers per subject
SUBJECTS = {
    "reinforcement learning": "policy reward actor critic bandit offline trajectory episode exploration "
    "control horizon locomotion simulator regret Bellman rollouts",
    "diffusion models": "denoising noise sampler latent image guidance schedule pixel portrait inpainting "
    "texture flow distillation autoencoder photo style",
    "machine translation": "bilingual dialect Swahili Finnish morphology interpreter subtitle idiom corpus "
    "glossary phrase pivot transliteration Basque fluency transfer",
    "speech recognition": "acoustic phoneme microphone transcript speaker accent whisper prosody spectrogram "
    "vowel hearing dictation stutter caption voice syllable",
    "protein folding": "amino acid residue enzyme ligand docking mutation antibody chain helix binding "
    "membrane genome peptide crystal assay",
    "autonomous driving": "lidar lane pedestrian vehicle steering traffic intersection camera radar highway "
    "map collision brake parking weather sensor",
    "federated learning": "client server privacy aggregation gradient hospital device communication secure "
    "encryption straggler heterogeneity bandwidth leakage poisoning consent",
    "program synthesis": "compiler bug repair unit repository commit syntax Python function debugger patch "
    "static type refactoring vulnerability invariant",
    "graph networks": "node edge neighbour molecule spectral citation link community message hub "
    "oversmoothing subgraph walk clique adjacency isomorphism",
    "medical imaging": "tumour scan radiology lesion ultrasound patient clinic biopsy retina X-ray "
    "diagnosis pathology dose contrast heart organ",
    "retrieval": "query index passage document ranking search evidence knowledge citation reader vector "
    "rerank question entity web archive",
    "robot grasping": "gripper finger tactile arm object grasp friction torque kitchen tool cloth bimanual "
    "dexterity wrist pick assembly",
    "time series": "forecast season anomaly electricity demand trend missing interval stock calendar lag "
    "wavelet drift horizon river temperature",
    "quantization": "bit weight activation kernel memory throughput cache accelerator integer rounding "
    "outlier calibration precision edge sparsity pruning",
    "astronomy": "galaxy telescope supernova redshift orbit comet spectrum dust pulsar exoplanet "
    "asteroid nebula lens eclipse dwarf cosmic",
}
COMMON = """
    method model data result approach benchmark problem baseline network training task performance
    framework analysis evaluation code large new simple robust
"""
SHORT = {"reinforcement learning": "RL", "machine translation": "MT"}


def papers() -> list[PaperView]:
    """Return papers numbered from 1. If their subject has an abbreviation, every second one spells it out."""
    rng, views = random.Random(0), list[PaperView]()  # noqa: S311
    for subject, words in SUBJECTS.items():
        for number in range(EACH):
            own = rng.sample(words.split(), 8)
            name = f"{subject} ({SHORT[subject]})" if subject in SHORT and number % 2 else subject
            filler = rng.sample(COMMON.split(), 6)
            abstract = (
                f"We study {name}: {', '.join(own[2:5])}. A {' '.join(filler)} of {', '.join(own[5:])}."
            )
            views.append(PaperView(len(views) + 1, f"{own[0].title()} and {own[1].title()}", abstract))
    return views


@cache
def trained_model() -> RelevanceModel:
    """Return the model trained on these papers, once for all tests."""
    return RelevanceModel.train([(paper.title, paper.abstract) for paper in papers()])
