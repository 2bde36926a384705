"""The hashes of the run files that ship, pinned: unfinished runs of users go on under a new version of the package.

A key that came later is left out of canonical JSON while it has its default: declare it with ``later=True``, or with
the default None.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.config import load_run, run_sha256

EXAMPLES = Path(__file__).parents[2] / "examples"
HASHES = {
    "demo-private": "204bd08100edc718ed295883dd0e8a02faf527caa4c604f9691083379e5b7e98",
    "demo": "6d59f64366d1d1c2c640d6a4a6c02f6165513d1836718758072da23d08dd596d",
    "fashion-private": "3994256fe34ad6faad4a320ed2ed8560605e72f9b812ecb9d08609645199cc7c",
    "fashion-two-classes": "f69bb173c028d196f909b74f7b3a4b4935c4ce22283f1d5c57972694ee09a487",
    "frozen": "7d4aac2d441643a8b54063665a8a57924a232288a6bbe48256f1627345b7d3e4",
    "mnist-cancelling": "6a7bfb48ed9622153c05cb4544c9c060ea562a1924816183b81b2bb32ab9251e",
    "mnist-hundred": "49c460949ea71433a9c12ed95cc63bfdb65215104a1e65389a29fce3ba58d1a1",
    "mnist-private": "944a6500edd4a9fadd62884dc5eb0ef9272b23228720f65f85791b7f25e38381",
    "mnist-pure": "439f384b6d94a8f0e7cb781c2e5b876a55399b307ed49db8df437e2e5d16d977",
    "mnist-two-classes": "119136603b9bde06c080a088c1e5ca0b002201c1765d049e8a0126ffb2f67625",
    "paper-s1": "c50c834b4c08a26f190f576e05817a76f361b58c7c8e69fe064949ff138b9e3e",
    "paper-s2": "29e5e6f1500f2e750809664c530ba03bdf2ec211ee3673ded252d9e28af25eb5",
    "pl-linear-s1": "d21e2d3c582fbc1581dab8e8589d92b9b175d040b62dbad9eb95db127b75e16e",
    "pl-linear-s2": "c10fed45027843d055853fef5e335e0fa8c8911286be60523afefef41b0a73ca",
    "pl-sine-s1": "2c17e6636dccbedfcdd745b2568cbdfa464bf0d602b3d2a6e4351dda688a820d",
    "pl-sine-s2": "b8b39a5c8d5438719acd2bd01bf48d363512e811b68c568680ae88a295775187",
    "quadratic": "f9d2cc418da9a246cd408439aaf08ca575af96ec32c3b1885db7ef9f4841dcf6",
    "resnet18": "e4205b05bd46f71f2afbf4bb4e64a8513b305ea96cf7ea08a94ec765a88abd90",
    "robust": "99e3e6f2934ddc6509fbf196f61598d72a9bf44943ee7c16086ff8797a0a29b3",
    "spanning-trees": "5c40f4ae663219b05f7ddbb61927ead7e7bbc33b5cb39ece8f78eac5d3c52588",
    "study-attack": "72962f25cde906428e841e0321a8bbe1bd6dd5015085b8bb453129e6b046e860",
    "study-membership": "cd2718a87c7b64e690c7dc431d95d8c26d8c1e5bb2cc8ef1dccb17944ffabfc8",
    "zeros": "53d0d027184a5d1344f646d78c591c1da39e00240e078659a7bb801116f455bb",
}


@pytest.mark.parametrize("name", HASHES)
def test_the_hash_of_an_example_is_what_it_was(name):
    assert run_sha256(load_run(EXAMPLES / f"{name}.toml")) == HASHES[name]


def test_every_example_is_pinned():
    assert {path.stem for path in EXAMPLES.glob("*.toml")} == HASHES.keys()
